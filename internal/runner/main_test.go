package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
)

// helperVariable makes the test binary act as a program under test instead of running tests.
const helperVariable = "RUNNER_TEST_HELPER"

// testPath is a PATH that an unprivileged user can use too.
const testPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		helper, ok := helpers[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such helper:", name)
			os.Exit(99)
		}
		helper(os.Args[1:])
		// Without what the race detector and the coverage do and say at an ordinary exit.
		syscall.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("toolcall.dev/operator/internal/runner/sandbox/kernel.worker.serve"), goleak.Cleanup(func(code int) {
		if self, err := copySelf(); err == nil {
			os.RemoveAll(filepath.Dir(self))
		}
		os.Exit(code)
	}))
}

// bash is a command that runs a script, with generous limits.
func bash(script string) Command {
	return program("bash", "-c", script)
}

func program(argv ...string) Command {
	return Command{
		Argv: argv, Env: []string{"PATH=" + testPath, "HOME=/"}, Dir: "/",
		Grace: 10 * time.Second, Bounds: spec.Bounds{TimeoutMilliseconds: 60_000, MaxBytesPerStream: 64 << 10, Rules: rulesInForce()},
	}
}

// rulesVariable puts rules in force for all commands of all tests.
const rulesVariable = "RUNNER_TEST_RULES"

// rulesInForce let everything run, but through all that holds rules.
func rulesInForce() *rules.Rules {
	if os.Getenv(rulesVariable) == "" {
		return nil
	}
	return &rules.Rules{Programs: &rules.Programs{Allowed: []string{"/"}, AllowWritable: true}}
}

// ownRules skips a test with rules of its own when rules are in force for all.
func ownRules(t testing.TB) {
	t.Helper()
	if rulesInForce() != nil {
		t.Skip("it has rules of its own")
	}
}

// helperCommand runs the test binary as one of the helpers.
func helperCommand(t testing.TB, name string, args ...string) Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(append([]string{self}, args...)...)
	cmd.Env = append(cmd.Env, helperVariable+"="+name)
	return cmd
}

// runIt runs a command, checks what must hold for every outcome, and that nothing is left.
func runIt(t testing.TB, ctx context.Context, cmd Command) result.Outcome {
	t.Helper()
	o := Run(ctx, cmd)
	reason := o.Reason
	o.Shorten()
	if err := o.Validate(); err != nil || o.Reason != reason {
		t.Errorf("invalid outcome: %v\n%s", err, describe(o))
	}
	checkNothingLeft(t)
	return o
}

// checkNothingLeft looks for children of the test process: orphans of a command would be among them.
func checkNothingLeft(t testing.TB) {
	t.Helper()
	for _, p := range proc.All() {
		if p.Parent == os.Getpid() {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
			t.Errorf("process %d is left (zombie: %v): %s", p.PID, p.Zombie, strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
}

func describe(o result.Outcome) string {
	code := "none"
	if o.ExitCode != nil {
		code = fmt.Sprint(*o.ExitCode)
	}
	return fmt.Sprintf("reason %s, exit code %s, signal %q, message %q, %d ms\nstdout: %.2000s\nstderr: %.2000s",
		o.Reason, code, o.Signal, o.Message, o.DurationMS, text(o.Stdout), text(o.Stderr))
}

func text(s result.Stream) string {
	out, _ := s.Text(1 << 20)
	return out
}

// want is what a test expects of an outcome; stdout and stderr are compared when not nil.
type want struct {
	reason         string
	exit           *int32
	signal         string
	stdout, stderr *string
}

func (w want) check(t testing.TB, o result.Outcome) {
	t.Helper()
	switch {
	case o.Reason != w.reason,
		(o.ExitCode == nil) != (w.exit == nil),
		w.exit != nil && *o.ExitCode != *w.exit,
		o.Signal != w.signal,
		w.stdout != nil && text(o.Stdout) != *w.stdout,
		w.stderr != nil && text(o.Stderr) != *w.stderr:
		t.Errorf("want %+v, got %s", w, describe(o))
	}
}

func completed(stdout, stderr string) want {
	return want{reason: result.Completed, exit: result.Exit(0), stdout: &stdout, stderr: &stderr}
}

// await polls until done says so. It gives up shortly before the deadline of the test binary, which needs no guess.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, bounded := t.Deadline()
	for !done() {
		if bounded && time.Until(deadline) < time.Second {
			t.Fatalf("there is no %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := lookProgram([]string{name}, []string{"PATH=" + testPath}, nil); err != nil {
			t.Skipf("%s isn't installed", name)
		}
	}
}

// publicDir is a directory that every user can enter, unlike the ones that testing makes.
func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "runner-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func itoa(n int) string { return fmt.Sprint(n) }
