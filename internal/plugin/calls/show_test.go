package calls

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// newFile returns an open file.
func newFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestDestinationsOfStreams(t *testing.T) {
	t.Parallel()
	file, other, buffer := newFile(t), newFile(t), &bytes.Buffer{}
	again, err := os.OpenFile(file.Name(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	closed := newFile(t)
	closed.Close()
	for name, c := range map[string]struct {
		a, b io.Writer
		want bool
	}{
		"one file":           {file, file, true},
		"a file, twice open": {file, again, true},
		"two files":          {file, other, false},
		"a closed file":      {closed, closed, false},
		"one buffer":         {buffer, buffer, true},
		"two buffers":        {buffer, &bytes.Buffer{}, false},
		"a file and another": {file, buffer, false},
	} {
		if got := sameFile(c.a, c.b); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Where both streams go to one place, they are shown as they come.
func TestHowOutputIsShown(t *testing.T) {
	t.Parallel()
	shared := &bytes.Buffer{}
	for name, c := range map[string]struct {
		live          bool
		out, errs     io.Writer
		errors, atEnd bool
	}{
		"one place":              {true, shared, shared, false, false},
		"one place, at the end":  {false, shared, shared, false, true},
		"two places":             {true, &bytes.Buffer{}, &bytes.Buffer{}, true, false},
		"two places, at the end": {false, &bytes.Buffer{}, &bytes.Buffer{}, true, true},
	} {
		w := NewDisplay(plugintest.TestCLI(genericiooptions.IOStreams{Out: c.out, ErrOut: c.errs}), c.live).watcher()
		if (w.Errors != nil) != c.errors || w.AtEnd != c.atEnd || w.Output == nil {
			t.Errorf("%s: errors %t, at the end %t", name, w.Errors != nil, w.AtEnd)
		}
	}
}

// Each stream goes where it belongs, and a notice goes to standard error, on one safe line.
func TestOutputGoesWhereItBelongs(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	w := NewDisplay(plugintest.TestCLI(genericiooptions.IOStreams{Out: &out, ErrOut: &errs}), true).watcher()
	w.Output([]byte("out\x1b\n"))
	w.Errors([]byte("err\n"))
	w.Notice("mind\x1b")
	if out.String() != "out\x1b\n" || errs.String() != "err\nnote: mind^[\n" {
		t.Errorf("got %q and %q", out.String(), errs.String())
	}
}

// With -o, messages show and output doesn't.
func TestNoDisplay(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	shown := noDisplay(plugintest.TestCLI(genericiooptions.IOStreams{ErrOut: &errs}))
	changed := 0
	shown.Changed = func(*v1alpha1.ToolCall) { changed++ }
	w := shown.watcher()
	w.Notice("x")
	w.Changed(&v1alpha1.ToolCall{})
	if w.Output != nil || w.Errors != nil || errs.String() != "note: x\n" || changed != 1 {
		t.Errorf("output %t, errors %t, %q, %d changes", w.Output != nil, w.Errors != nil, errs.String(), changed)
	}
}

// countingWriter fails after some writes.
type countingWriter struct{ writes, fails int }

func (c *countingWriter) Write(p []byte) (int, error) {
	if c.writes++; c.writes > c.fails {
		return 0, syscall.EPIPE
	}
	return len(p), nil
}

// After a failed write nothing more is written, and the loss is reported once.
func TestALostReaderIsReportedOnce(t *testing.T) {
	t.Parallel()
	out, lost := &countingWriter{fails: 2}, 0
	d := &display{Out: out, errs: io.Discard, readerLost: func(*cli.ExitError) { lost++ }}
	w := d.watcher()
	for range 10 {
		w.Output([]byte("x"))
	}
	if out.writes != 3 || lost != 1 || d.failed == nil || d.failed.Code != cli.CodePipe || d.failed.Err != nil {
		t.Errorf("%d writes, %d reports, failed: %v", out.writes, lost, d.failed)
	}
	silent := &display{Out: &countingWriter{}, errs: io.Discard}
	silent.watcher().Output([]byte("x"))
	if silent.failed == nil {
		t.Error("a failure without a listener is lost")
	}
}
