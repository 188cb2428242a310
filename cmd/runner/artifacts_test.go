package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func collecting(a *wire.Assignment, globs ...string) *wire.Assignment {
	a.Collect = &spec.Collect{Globs: globs, DeniedPaths: []string{"*.key"}, MaxCount: 10, MaxBytes: 4 << 20, MaxTotalBytes: 8 << 20}
	return a
}

// checkArtifact reads an artifact whole.
func checkArtifact(t *testing.T, o *operator, runner *dispatch.Runner, uid string, a *result.Artifact) {
	t.Helper()
	f := newFollower(t, runner, uid, "")
	f.key.Artifact = a.Path
	f.checkWhole(f.follow(o, endless), a.Bytes)
	if f.sum() != a.SHA256 {
		t.Errorf("%s has the hash %s, and %s is said", a.Path, f.sum(), a.SHA256)
	}
}

func isThere(t *testing.T, o *operator, runner *dispatch.Runner, uid, path string) bool {
	t.Helper()
	source := &dispatch.RunnerSource{Hub: o.hub, RunnerOf: func(context.Context, output.Key) (string, error) { return runner.KeyHash(), nil }}
	f := newFollower(t, runner, uid, "")
	f.key.Artifact = path
	r, err := source.Open(t.Context(), f.key)
	if err != nil {
		if !errors.Is(err, output.ErrNotFound) {
			t.Fatal(err)
		}
		return false
	}
	r.Close()
	return true
}

func listed(a *result.Artifacts) string {
	if a == nil {
		return "nothing"
	}
	var list []string
	for _, one := range a.Kept {
		list = append(list, fmt.Sprintf("%s %d %s", one.Path, one.Bytes, one.MediaType))
	}
	return strings.Join(list, ", ")
}

func TestFilesOfACallAreReadAfterItsEnd(t *testing.T) {
	o := newOperator(t)
	p := startRunner(t, o)
	runner := <-o.events
	a := collecting(p.assignment(`mkdir -p out; seq 1 100000000 | head -c 3145728 >out/large.csv; printf '\211PNG\r\n\032\n' >out/plot; : >out/empty
ln -s /etc/passwd out/passwd; mkfifo out/fifo; echo secret >out/x.key; head -c 5000000 /dev/zero >out/zero; echo mine >&2; exit 3`), "out/*", "none/*")
	assign(t, runner, a)
	r := o.result("c1")
	if r.Outcome.Reason != result.NonZeroExit || *r.Outcome.ExitCode != 3 {
		t.Fatalf("got %+v", r)
	}
	got := r.Outcome.Artifacts
	if want := "out/empty 0 text/plain, out/large.csv 3145728 text/csv, out/plot 8 image/png"; listed(got) != want || got.Omitted != 3 {
		t.Errorf("got %s, %d omitted: %s", listed(got), got.Omitted, got.Message)
	}
	for i := range got.Kept {
		checkArtifact(t, o, runner, "c1", &got.Kept[i])
		o.stop()
		o.start()
		runner = <-o.events
	}
	for _, path := range []string{"out/passwd", "out/x.key", "out/fifo", "/etc/passwd", "large.csv", "out/../out/plot", strings.Repeat("x", 256)} {
		if isThere(t, o, runner, "c1", path) {
			t.Errorf("%s can be read", path)
		}
	}
	if isThere(t, o, runner, "c2", "out/plot") {
		t.Error("another call's files can be read")
	}
	p.ack(runner)
	if lost := p.saved().Artifacts; lost == nil || lost.Omitted != 6 || lost.Message == "" {
		t.Errorf("the copy of the result says %+v", lost)
	}
}

func TestFilesAreCollectedHoweverACallEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script, reason string
		change         func(*wire.Assignment)
		want           string
	}{
		"in time":           {`echo x >f`, result.Completed, nil, "f 2 text/plain"},
		"at its limit":      {`echo x >f; sleep 1000`, result.TimedOut, func(a *wire.Assignment) { a.TimeoutMilliseconds = 500 }, "f 2 text/plain"},
		"by a signal":       {`echo x >f; kill -9 $$`, result.Signaled, nil, "f 2 text/plain"},
		"before its start":  {``, result.CommandNotFound, func(a *wire.Assignment) { a.Argv = []string{"no-such-program"} }, "nothing"},
		"without its files": {`cd ..; rm -r "$OLDPWD"`, result.Completed, nil, ""},
		"without globs":     {`echo x >f`, result.Completed, func(a *wire.Assignment) { a.Collect = nil }, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOperator(t)
			p := startRunner(t, o)
			runner := <-o.events
			a := collecting(p.assignment(c.script), "f")
			if c.change != nil {
				c.change(a)
			}
			assign(t, runner, a)
			r := o.result("c1")
			if r.Outcome.Reason != c.reason || listed(r.Outcome.Artifacts) != c.want {
				t.Errorf("got %+v, %s", r, listed(r.Outcome.Artifacts))
			}
			p.ack(runner)
		})
	}
}

func TestFilesOfASessionsCallsStayAsTheyWere(t *testing.T) {
	o := newOperator(t)
	p := startRunnerBy(t, o, nil, wire.EnvCall+"=", wire.EnvPool+"=env")
	runner := <-o.events
	if err := runner.Begin(theSession(2)); err != nil {
		t.Fatal(err)
	}
	start := func(uid, script string) {
		if err := runner.Assign("s1", collecting(p.call(uid, script).Assign, "out/**")); err != nil {
			t.Fatal(err)
		}
	}
	await := func(uid string) *result.Artifacts {
		for ; runner.ResultOf(uid) == nil; <-o.events {
		}
		r := runner.ResultOf(uid)
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		if err := runner.Ack(uid); err != nil {
			t.Fatal(err)
		}
		return r.Outcome.Artifacts
	}
	start("c1", `mkdir -p out/deep; seq 1 100000 >out/deep/a; echo 1 >out/b`)
	first := await("c1")
	start("c2", `rm out/deep/a; echo 2 >out/b`)
	second := await("c2")
	if listed(first) != "out/b 2 text/plain, out/deep/a 588895 text/plain" || listed(second) != "out/b 2 text/plain" || first.Kept[0].SHA256 == second.Kept[0].SHA256 {
		t.Errorf("got %s, and %s", listed(first), listed(second))
	}
	start("c3", `echo 3 >out/b; echo on; read x <`+p.fifo("never"))
	newFollower(t, runner, "c3", output.Stdout).follow(o, 1)
	if err := runner.Stop("c3", "CancelRequested"); err != nil {
		t.Fatal(err)
	}
	third := await("c3")
	if listed(third) != "out/b 2 text/plain" || third.Kept[0].SHA256 == second.Kept[0].SHA256 {
		t.Errorf("a call that was stopped has %s", listed(third))
	}
	for uid, artifacts := range map[string]*result.Artifacts{"c1": first, "c2": second, "c3": third} {
		for i := range artifacts.Kept {
			checkArtifact(t, o, runner, uid, &artifacts.Kept[i])
		}
	}
	if isThere(t, o, runner, "c2", "out/deep/a") {
		t.Error("a call has another one's files")
	}
	if err := runner.End("EndRequested"); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
}
