package plugin

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
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
		live          string
		out, errs     io.Writer
		errors, atEnd bool
	}{
		"one place":              {liveAlways, shared, shared, false, false},
		"one place, at the end":  {liveNever, shared, shared, false, true},
		"two places":             {liveAlways, &bytes.Buffer{}, &bytes.Buffer{}, true, false},
		"two places, at the end": {liveNever, &bytes.Buffer{}, &bytes.Buffer{}, true, true},
	} {
		cli := newCLI(genericiooptions.IOStreams{Out: c.out, ErrOut: c.errs})
		w := (&outputFlags{live: c.live}).display(cli).watcher()
		if (w.Errors != nil) != c.errors || w.AtEnd != c.atEnd || w.Output == nil {
			t.Errorf("%s: errors %t, at the end %t", name, w.Errors != nil, w.AtEnd)
		}
	}
}

// Each stream goes where it belongs, and a notice goes to standard error, on one safe line.
func TestOutputGoesWhereItBelongs(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	w := (&outputFlags{live: liveAlways}).display(newCLI(genericiooptions.IOStreams{Out: &out, ErrOut: &errs})).watcher()
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
	shown := noDisplay(newCLI(genericiooptions.IOStreams{ErrOut: &errs}))
	changed := 0
	shown.changed = func(*v1alpha1.ToolCall) { changed++ }
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
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// After a failed write nothing more is written, and the loss is reported once.
func TestALostReaderIsReportedOnce(t *testing.T) {
	t.Parallel()
	out, lost := &countingWriter{fails: 2}, 0
	d := &display{out: out, errs: io.Discard, readerLost: func() { lost++ }}
	w := d.watcher()
	for range 10 {
		w.Output([]byte("x"))
	}
	if out.writes != 3 || lost != 1 || !d.hasFailed() {
		t.Errorf("%d writes, %d reports, failed: %t", out.writes, lost, d.hasFailed())
	}
	silent := &display{out: &countingWriter{}, errs: io.Discard}
	silent.watcher().Output([]byte("x"))
	if !silent.hasFailed() {
		t.Error("a failure without a listener is lost")
	}
}

// What the filter holds back appears at the end of the command, before its error.
func TestHeldBackOutputComesBeforeTheError(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	c := newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &screen, ErrOut: &screen})
	filter := terminal.NewWriter(&screen)
	c.Out, c.filters = filter, []*terminal.Writer{filter}
	if _, err := filter.Write([]byte("half a character \xe2\x82")); err != nil {
		t.Fatal(err)
	}
	if code := c.execute([]string{"get", "--phase", "none"}); code != 1 || !strings.HasPrefix(screen.String(), "half a character <E2><82>error: --phase") {
		t.Errorf("exit code %d, %q", code, screen.String())
	}
}
