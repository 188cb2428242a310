package supervisor_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

func collecting(e *supervisor.Executor, script string, globs ...string) *wire.Assignment {
	a := shell(e, script)
	a.Collect = &spec.Collect{Globs: globs, MaxCount: 10, MaxBytes: 1 << 20, MaxTotalBytes: 1 << 20}
	return a
}

func collected(o *result.Outcome) string {
	if o.Artifacts == nil {
		return "nothing was collected"
	}
	var list []string
	for _, one := range o.Artifacts.Kept {
		list = append(list, one.Path)
	}
	return strings.Join(list, " ")
}

func TestWhereFilesAreCollectedWithoutAPolicysPaths(t *testing.T) {
	e := executor(t)
	outside, err := os.MkdirTemp("/var/tmp", "outside")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(outside) })
	if err := os.WriteFile(outside+"/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := execute(t, e, collecting(e, `echo a >a`, "*", e.WorkingDir+"/a", outside+"/*", "/etc/hostname")).Outcome
	if collected(&o) != "a" || o.Reason != result.Completed || !strings.Contains(o.Artifacts.Message, outside) || !strings.Contains(o.Artifacts.Message, "/etc/hostname") {
		t.Errorf("got %s: %+v", collected(&o), o.Artifacts)
	}
	// The policy's paths hold instead, where it has some.
	a := collecting(e, `true`, "*", outside+"/*")
	a.Collect.WritePaths = []string{outside}
	if o := execute(t, e, a).Outcome; collected(&o) != outside+"/f" {
		t.Errorf("got %s: %+v", collected(&o), o.Artifacts)
	}
	a.Collect.WritePaths = []string{}
	if o := execute(t, e, a).Outcome; collected(&o) != "" || o.Reason != result.Completed {
		t.Errorf("got %s: %+v", collected(&o), o.Artifacts)
	}
}

func TestACallWithoutGlobsCollectsNothing(t *testing.T) {
	e := executor(t)
	if o := execute(t, e, shell(e, `echo a >a`)).Outcome; o.Artifacts != nil {
		t.Errorf("got %+v", o.Artifacts)
	}
}

// A process that puts a link in the place of its own directory gets nothing out of that.
func TestADirectoryThatBecameALink(t *testing.T) {
	e := executor(t)
	work := filepath.Join(e.WorkingDir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	a := collecting(e, `rmdir "$PWD"; ln -s /etc "`+work+`"`, "hostname", "passwd", "*")
	a.Environment.WorkingDir = work
	if o := execute(t, e, a).Outcome; collected(&o) != "" || o.Artifacts.Message == "" {
		t.Errorf("got %s: %+v", collected(&o), o.Artifacts)
	}
}

// Neither the call nor the next one waits for a file system that doesn't answer. Each of them is stopped at its start, so that
// the wait is short.
func TestFilesThatCannotBeOpenedEndNoCall(t *testing.T) {
	e := executor(t)
	_, letGo := stuckFile(t, e)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	running, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := collecting(e, `echo a >a`, "stuck", "a")
	e.Run = func(ctx context.Context, c runner.Command) result.Outcome {
		c.OnStreams = func(stdout, stderr kept.Output) {
			stdout.Drop()
			stderr.Drop()
			cancel()
		}
		return runner.Run(ctx, c)
	}
	o := e.Execute(running, a).Outcome
	e.Run = nil
	if o.Artifacts == nil || len(o.Artifacts.Kept) != 0 || !strings.Contains(o.Artifacts.Message, "doesn't answer") {
		t.Errorf("got %+v", o)
	}
	if o := e.Execute(ctx, a).Outcome; o.Started || o.Artifacts != nil {
		t.Errorf("a call that was stopped before: %+v", o)
	}
	letGo()
	if o := execute(t, e, collecting(e, `echo a >a`, "a", "stuck")).Outcome; collected(&o) != "a stuck" {
		t.Errorf("afterwards: %s, %+v", collected(&o), o.Artifacts)
	}
}
