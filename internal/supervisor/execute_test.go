package supervisor_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

// executor runs real processes in a directory of the test's own.
func executor(t *testing.T) *supervisor.Executor {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &supervisor.Executor{Environ: []string{"PATH=/usr/bin:/bin", wire.EnvToken + "=secret", "LD_PRELOAD=x", "HOME=/root"}, WorkingDir: dir}
}

// shell is an assignment that is allowed to run in the executor's directory.
func shell(e *supervisor.Executor, script string) *wire.Assignment {
	return &wire.Assignment{
		CallUID: "c1", Argv: []string{"sh", "-c", script}, Bounds: spec.Bounds{TimeoutMilliseconds: 60_000, MaxBytesPerStream: 1 << 10},
		Environment: envresolve.Plan{AllowedPaths: []string{e.WorkingDir}, Blocklist: []string{"LD_"}},
	}
}

// execute runs an assignment and holds the result to what the operator would.
func execute(t *testing.T, e *supervisor.Executor, a *wire.Assignment) *wire.Result {
	t.Helper()
	r := e.Execute(context.Background(), a)
	if err := r.Validate(); err != nil {
		t.Errorf("the operator would refuse the result: %v", err)
	}
	if _, err := wire.Encode(&wire.Message{Result: r}); err != nil {
		t.Errorf("the result can't be sent: %v", err)
	}
	if r.CallUID != a.CallUID {
		t.Errorf("the result is of call %q", r.CallUID)
	}
	return r
}

func TestACommandRunsWithWhatWasDecided(t *testing.T) {
	e := executor(t)
	var live bytes.Buffer
	e.Stdout = &live
	a := shell(e, `cat; echo "$GREETING in $(pwd)"; env | grep -c TOOLCALL_RUNNER; echo oops >&2; exit 3`)
	a.Stdin = []byte("input\n")
	a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "GREETING", Value: "hello"}}}}
	r := execute(t, e, a)
	if r.Outcome.Reason != result.NonZeroExit || r.Outcome.ExitCode == nil || *r.Outcome.ExitCode != 3 {
		t.Fatalf("got %+v", r.Outcome)
	}
	want := "input\nhello in " + e.WorkingDir + "\n0\n"
	if got := string(r.Outcome.Stdout.Head) + string(r.Outcome.Stdout.Tail); got != want {
		t.Errorf("stdout is %q, want %q", got, want)
	}
	if got := string(r.Outcome.Stderr.Head); got != "oops\n" {
		t.Errorf("stderr is %q", got)
	}
	if live.String() != want {
		t.Errorf("the pod's log shows %q", live.String())
	}
	if r.Environment.WorkingDir != e.WorkingDir || r.Outcome.WorkingDir != e.WorkingDir {
		t.Errorf("ran in %q and %q", r.Environment.WorkingDir, r.Outcome.WorkingDir)
	}
	if !slices.Contains(r.Environment.Vars, envresolve.ResolvedVar{Name: "GREETING", Source: envresolve.SourceCall}) ||
		!slices.Equal(r.Environment.Stripped, []string{"LD_PRELOAD"}) {
		t.Errorf("resolved %+v", r.Environment)
	}
}

func TestWhatKeepsACommandFromStartingIsSaid(t *testing.T) {
	e := executor(t)
	for name, c := range map[string]struct {
		change func(*wire.Assignment)
		reason string
	}{
		"a directory that doesn't exist": {func(a *wire.Assignment) { a.Environment.WorkingDir = e.WorkingDir + "/none" }, result.WorkingDirNotFound},
		"a directory that isn't allowed": {func(a *wire.Assignment) { a.Environment.WorkingDir = "/etc" }, result.WorkingDirNotAllowed},
		"a program that doesn't exist":   {func(a *wire.Assignment) { a.Argv = []string{"no-such-program"} }, result.CommandNotFound},
		"a reference with nothing there": {func(a *wire.Assignment) {
			a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{{Name: "X", Ref: wire.EnvRefPrefix + "1"}}}}
		}, result.InvalidEnvironment},
		"a plan that can't be": {func(a *wire.Assignment) { a.Environment.Blocklist = []string{""} }, result.InvalidEnvironment},
	} {
		a := shell(e, "touch "+filepath.Join(e.WorkingDir, "started"))
		c.change(a)
		r := execute(t, e, a)
		if r.Outcome.Started || r.Outcome.Reason != c.reason || r.Outcome.Message == "" {
			t.Errorf("%s: %+v", name, r.Outcome)
		}
	}
	if _, err := os.Stat(filepath.Join(e.WorkingDir, "started")); err == nil {
		t.Error("a command was started all the same")
	}
}

func TestRulesHoldACommand(t *testing.T) {
	e := executor(t)
	a := shell(e, "id; ls -d /; exit 4")
	a.Rules = &rules.Rules{
		Policy: "agents", WritePaths: []string{e.WorkingDir}, Programs: &rules.Programs{Allowed: []string{"ls"}, Own: "sh"},
	}
	r := execute(t, e, a)
	o := &r.Outcome
	if o.Reason != result.NonZeroExit || string(o.Stdout.Head) != "/\n" || len(o.Executed) != 2 || len(o.Refused) != 1 {
		t.Fatalf("got %+v", o)
	}
	if !strings.HasSuffix(o.Message, `id" was not allowed to run: add it to binaries.allowed of policy "agents".`) {
		t.Errorf("the message is %s", o.Message)
	}
	if !o.Isolation.Programs || !o.Isolation.Writes {
		t.Errorf("held were %+v", o.Isolation)
	}
}

func TestTheContextStopsACommandWithItsReason(t *testing.T) {
	e := executor(t)
	ctx, stop := context.WithCancelCause(context.Background())
	e.Stdout = writerFunc(func(p []byte) { stop(runner.Stop{Reason: result.PodLost, Message: "the pod goes away"}) })
	r := e.Execute(ctx, shell(e, "echo ready; exec sleep 600"))
	if r.Outcome.Reason != result.PodLost || r.Outcome.Message != "the pod goes away" || string(r.Outcome.Stdout.Head) != "ready\n" {
		t.Errorf("got %+v", r.Outcome)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// A policy of an older version may ask for more output, and an image may have more variables, than a result can hold.
func TestAResultIsLegalWhateverTheAssignmentAndTheImageAskFor(t *testing.T) {
	e := executor(t)
	for i := range 2 * wire.MaxNames {
		e.Environ = append(e.Environ, fmt.Sprintf("V%d=x", i), fmt.Sprintf("LD_%d=x", i))
	}
	e.Environ = append(e.Environ, strings.Repeat("N", wire.MaxNameBytes+1)+"=x")
	a := shell(e, "head -c 1500000 /dev/zero; head -c 1500000 /dev/zero >&2")
	a.MaxBytesPerStream = 1 << 20
	r := execute(t, e, a)
	if kept := len(r.Outcome.Stdout.Head) + len(r.Outcome.Stdout.Tail); kept != result.MaxStreamBytes || r.Outcome.Stdout.Bytes != 1500000 {
		t.Errorf("kept %d of %d bytes", kept, r.Outcome.Stdout.Bytes)
	}
	if env := &r.Environment; len(env.Vars) != wire.MaxNames || env.OmittedVars == 0 || len(env.Stripped) != wire.MaxNames || env.OmittedStripped == 0 {
		t.Errorf("%d variables and %d more, %d stripped and %d more", len(env.Vars), env.OmittedVars, len(env.Stripped), env.OmittedStripped)
	}
}
