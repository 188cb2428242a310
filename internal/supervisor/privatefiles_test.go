package supervisor_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

// withFile gives a call a value in a file.
func withFile(a *wire.Assignment) *wire.Assignment {
	a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{
		{Name: "KEY", Ref: wire.EnvRefPrefix + "1", File: true},
	}}}
	return a
}

// temporary is where the files of secrets are made in a test.
func temporary(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	supervisor.SetTemporaryDir(t, dir)
	return dir
}

func wantNoFilesLeft(t *testing.T, tmp string) {
	t.Helper()
	if left, err := os.ReadDir(tmp + "/" + supervisor.PrivateFilesName); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestASecretInAFileIsThereForItsCallAlone(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	// What the image sets doesn't count.
	t.Setenv("TMPDIR", e.WorkingDir)
	e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=line 1\nline 2\n")
	for name, restrict := range map[string]*rules.Rules{
		"without rules":               nil,
		"with a policy's directories": {ReadPaths: []string{e.WorkingDir}},
	} {
		a := withFile(shell(e, `cat "$KEY"; stat -c "%a" "$KEY" "${KEY%/*}" "${KEY%/*/*}"; echo "$KEY" >&2`))
		a.Rules = restrict
		r := execute(t, e, a)
		if got := string(r.Outcome.Stdout.Head); r.Outcome.Reason != result.Completed || got != "line 1\nline 2\n400\n700\n700\n" {
			t.Fatalf("%s: %s, %q, %s", name, r.Outcome.Reason, got, r.Outcome.Stderr.Head)
		}
		path := strings.TrimSpace(string(r.Outcome.Stderr.Head))
		if _, err := os.Stat(path); !strings.HasPrefix(path, tmp+"/"+supervisor.PrivateFilesName+"/") || !os.IsNotExist(err) {
			t.Errorf("%s: after the call, %s: %v", name, path, err)
		}
	}
	wantNoFilesLeft(t, tmp)
}

// "chmod -R a+rwX /tmp" of one call costs the next ones nothing.
func TestADirectoryOfFilesThatACommandHasOpenedToOthersIsClosedAgain(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
	for range 2 {
		script := `stat -c "%a" "${KEY%/*}" "${KEY%/*/*}"; chmod -R a+rwX "${KEY%/*/*/*}"`
		if o := execute(t, e, withFile(shell(e, script))).Outcome; o.Reason != result.Completed || string(o.Stdout.Head) != "700\n700\n" {
			t.Errorf("%s: %s, %q, %s", o.Reason, o.Message, o.Stdout.Head, o.Stderr.Head)
		}
	}
	wantNoFilesLeft(t, tmp)
}

func TestASecretThatCanNotBeInAFileKeepsItsCallFromStarting(t *testing.T) {
	for name, prepare := range map[string]func(own string) error{
		"there is no temporary directory": func(own string) error { return os.Remove(filepath.Dir(own)) },
		"a file is in the way":            func(own string) error { return os.WriteFile(own, nil, 0o600) },
		"a FIFO is in the way":            func(own string) error { return unix.Mkfifo(own, 0o700) },
		"a link leads to a directory": func(own string) error {
			return errors.Join(os.Mkdir(own+"-elsewhere", 0o700), os.Symlink(filepath.Base(own)+"-elsewhere", own))
		},
		"a link leads out": func(own string) error { return os.Symlink("/", own) },
		"another user's": func(own string) error {
			if os.Geteuid() != 0 {
				return os.WriteFile(own, nil, 0o600)
			}
			return errors.Join(os.Mkdir(own, 0o700), os.Chown(own, 12345, 12345))
		},
	} {
		t.Run(name, func(t *testing.T) {
			tmp, e := temporary(t), executor(t)
			if err := prepare(tmp + "/" + supervisor.PrivateFilesName); err != nil {
				t.Fatal(err)
			}
			e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
			r := execute(t, e, withFile(shell(e, "true")))
			if r.Outcome.Reason != result.InvalidEnvironment || !strings.Contains(r.Outcome.Message, "files of secrets") || strings.Contains(r.Outcome.Message, "secret-value") {
				t.Errorf("got %s: %s", r.Outcome.Reason, r.Outcome.Message)
			}
			if out, err := exec.Command("grep", "-r", "secret-value", tmp).CombinedOutput(); err == nil {
				t.Errorf("the value is in %s", out)
			}
		})
	}
}

func TestASecretInAFileIsNotCollected(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	e.Outputs = supervisor.NewOutputs()
	e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
	a := withFile(shell(e, `echo x > "$DIR/kept"`))
	a.Environment.Layers = append(a.Environment.Layers, envresolve.Layer{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "DIR", Value: tmp}}})
	a.Collect = &spec.Collect{Globs: []string{tmp + "/**"}, WritePaths: []string{tmp}, MaxCount: 10, MaxBytes: 100, MaxTotalBytes: 1000}
	if o := execute(t, e, a).Outcome; collected(&o) != tmp+"/kept" {
		t.Errorf("collected %s: %+v", collected(&o), o.Artifacts)
	}
}

// While one call runs that has a file, others look for it.
func TestASecretInAFileIsNotForFilesOfOthers(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	e.Outputs = supervisor.NewOutputs()
	e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
	looked := false
	own := *e
	own.Run = func(_ context.Context, c runner.Command) result.Outcome {
		looked = true
		key := strings.TrimPrefix(c.Env[slices.IndexFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, "KEY=") })], "KEY=")
		if content, err := os.ReadFile(key); err != nil || string(content) != "secret-value" {
			t.Errorf("the file has %q, %v", content, err)
		}
		lookForFile(t, e, tmp, key)
		return result.Outcome{Reason: result.Completed, Message: "done"}
	}
	own.Execute(t.Context(), withFile(shell(e, "")))
	if !looked {
		t.Error("the call with the file didn't run")
	}
	wantNoFilesLeft(t, tmp)
}

// lookForFile lets file actions, transfers and collecting look for another call's file.
func lookForFile(t *testing.T, e *supervisor.Executor, tmp, key string) {
	t.Helper()
	paths := spec.FileRules{ReadPaths: []string{tmp}, WritePaths: []string{tmp}}
	for name, file := range map[string]*spec.File{
		"read": {Operation: "Read", Path: key}, "grep": {Operation: "Grep", Path: tmp, Pattern: "secret"},
		"glob": {Operation: "Glob", Path: tmp, Pattern: "**/KEY"}, "move": {Operation: "Move", Path: key, Destination: tmp + "/taken"},
	} {
		a := shell(e, "")
		a.Argv, a.File = nil, file
		file.Rules = paths
		if o := execute(t, e, a).Outcome; name != "grep" && name != "glob" && o.Reason != result.PathNotAllowed || len(o.Stdout.Head) > 0 {
			t.Errorf("%s: %s, %q", name, o.Reason, o.Stdout.Head)
		}
	}
	allowed, _, err := e.TransferRules(&wire.Transfer{Kind: wire.TransferRead, Path: key, Rules: paths, Environment: shell(e, "").Environment})
	if err != nil || !slices.Contains(allowed.RunnerPaths, tmp+"/"+supervisor.PrivateFilesName) {
		t.Errorf("transfers: %+v, %v", allowed, err)
	}
	a := shell(e, "true")
	a.Collect = &spec.Collect{Globs: []string{tmp + "/**", key}, WritePaths: []string{tmp}, MaxCount: 10, MaxBytes: 100, MaxTotalBytes: 1000}
	if o := execute(t, e, a).Outcome; collected(&o) != "" {
		t.Errorf("collected %s", collected(&o))
	}
}

func TestWhatACommandDoesToItsFilesKeepsNoneOfThem(t *testing.T) {
	for name, script := range map[string]string{
		"it takes the right to write": `chmod 500 "${KEY%/*}"`,
		"it takes all rights":         `chmod 0 "${KEY%/*}"`,
		"it removes the file":         `rm -f "$KEY"`,
		"it removes the directory":    `rm -rf "${KEY%/*}"`,
		"it moves the directory":      `mv "${KEY%/*}" "${KEY%/*/*/*}/moved"`,
		"it moves it and takes all":   `mv "${KEY%/*}" "${KEY%/*/*/*}/moved"; chmod 0 "${KEY%/*/*/*}/moved"`,
		"it moves the one above":      `mv "${KEY%/*/*}" "${KEY%/*/*/*}/moved"`,
		"it makes more":               `mkdir "${KEY%/*}/more"; cp "$KEY" "${KEY%/*}/more"`,
	} {
		t.Run(name, func(t *testing.T) {
			tmp, e := temporary(t), executor(t)
			e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
			if o := execute(t, e, withFile(shell(e, script))).Outcome; o.Reason != result.Completed || strings.Contains(o.Message, "secrets") {
				t.Errorf("got %s: %s, %s", o.Reason, o.Message, o.Stderr.Head)
			}
			if out, err := exec.Command("grep", "-r", "secret-value", tmp).CombinedOutput(); err == nil {
				t.Errorf("the value is in %s", out)
			}
		})
	}
}

// A tree of any depth costs the runner, which has other calls in a session, one open directory at a time.
func TestATreeThatACommandMakesAmongItsFilesIsRemoved(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
	script := `cd "${KEY%/*}"; mkdir -p a/b; touch a/f a/b/f; for i in $(seq 300); do mkdir d f$i; cd d; done; mkdir -p x/y; chmod 0 x`
	if o := execute(t, e, withFile(shell(e, script))).Outcome; o.Reason != result.Completed || strings.Contains(o.Message, "can't be removed") {
		t.Errorf("%s: %s, %s", o.Reason, o.Message, o.Stderr.Head)
	}
	if left, err := os.ReadDir(filepath.Join(tmp, supervisor.PrivateFilesName)); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestFilesThatCanNotBeRemovedAreSaid(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
	own := *e
	own.Run = func(context.Context, runner.Command) result.Outcome {
		// A mount in the way of removing.
		calls, err := os.ReadDir(tmp + "/" + supervisor.PrivateFilesName)
		if err != nil || len(calls) != 1 {
			t.Fatalf("%v, %v", calls, err)
		}
		at := filepath.Join(tmp, supervisor.PrivateFilesName, calls[0].Name(), "mount")
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("none", at, "tmpfs", 0, ""); err != nil {
			t.Skipf("can't mount: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(at, 0) })
		return result.Outcome{Reason: result.Completed, Message: "done."}
	}
	if o := own.Execute(t.Context(), withFile(shell(e, ""))).Outcome; strings.Count(o.Message, "can't be removed") != 1 || !strings.HasPrefix(o.Message, "done. ") {
		t.Errorf("got %q", o.Message)
	}
}

func TestASecretThatIsMissingFailsTheCallThatNeedsIt(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	a := withFile(shell(e, "true"))
	a.Environment.Layers[0].Vars[0].RefersTo = `key "ssh" of Secret "forge"`
	r := execute(t, e, a)
	if r.Outcome.Reason != result.InvalidEnvironment || r.Outcome.Started || !strings.Contains(r.Outcome.Message, `key "ssh" of Secret "forge"`) {
		t.Errorf("got %s: %s", r.Outcome.Reason, r.Outcome.Message)
	}
	wantNoFilesLeft(t, tmp)
	a.Environment.Layers[0].Vars[0].Optional = true
	if r := execute(t, e, a); r.Outcome.Reason != result.Completed {
		t.Errorf("an optional one: %s: %s", r.Outcome.Reason, r.Outcome.Message)
	}
}

// Without rules of the runner's own, another call of the session reads /proc/PID/environ.
func TestASessionWhoseCallsAreNotKeptApartGetsNoSecretOfATool(t *testing.T) {
	for name, tc := range map[string]struct {
		session bool
		rules   *rules.Rules
		change  func(*envresolve.Var)
		want    string
	}{
		"a session that the kernel doesn't hold": {true, nil, nil, result.IsolationUnavailable},
		"a variable that isn't a tool's alone":   {true, nil, func(v *envresolve.Var) { v.Apart = false }, result.Completed},
		"a session that the kernel holds":        {true, &rules.Rules{}, nil, result.Completed},
		"a call with a pod of its own":           {false, nil, nil, result.Completed},
		"an optional value that isn't there":     {true, nil, func(v *envresolve.Var) { v.Ref, v.Optional = "NONE", true }, result.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			tmp, e := temporary(t), executor(t)
			e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=secret-value")
			a := withFile(shell(e, "true"))
			a.Environment.Layers[0].Vars[0].Apart = true
			if tc.change != nil {
				tc.change(&a.Environment.Layers[0].Vars[0])
			}
			if tc.session {
				e.Session = &wire.Begin{}
			}
			e.Rules = tc.rules
			r := execute(t, e, a)
			if r.Outcome.Reason != tc.want || r.Outcome.Started != (tc.want == result.Completed) {
				t.Errorf("got %s: %s", r.Outcome.Reason, r.Outcome.Message)
			}
			if tc.want != result.Completed && (!strings.Contains(r.Outcome.Message, "KEY") || !strings.Contains(r.Outcome.Message, "Landlock")) {
				t.Errorf("the message is %q", r.Outcome.Message)
			}
			wantNoFilesLeft(t, tmp)
		})
	}
}
