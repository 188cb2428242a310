package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/testing/full"
)

// inside makes a command's rules: only some programs may run, and only /tmp and /workspace are written.
func inside(cmd Command, allowed ...string) Command {
	cmd.Rules = &rules.Rules{
		Policy: "agents", WritePaths: []string{"/tmp"},
		Programs: &rules.Programs{Allowed: allowed, Own: cmd.Argv[0]},
	}
	return cmd
}

// TestTheSuiteHoldsWithRulesInForce runs the package's other tests with each command in a domain.
func TestTheSuiteHoldsWithRulesInForce(t *testing.T) {
	full.Only(t, "each promise is shown with rules in force elsewhere")
	if rulesInForce() != nil {
		t.Skip("once is enough")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), rulesVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOnlyListedProgramsRun(t *testing.T) {
	o := runIt(t, t.Context(), inside(bash("ls -d /; id; ls -d /tmp; /usr/bin/id; exit 3"), "ls"))
	want{reason: result.NonZeroExit, exit: result.Exit(3), stdout: new("/\n/tmp\n")}.check(t, o)
	executed := result.Programs{{Path: real(t, "bash"), Count: 1}, {Path: real(t, "ls"), Count: 2}}
	refused := result.Programs{{Path: real(t, "id"), Count: 2, Rule: result.RuleNotListed}}
	if diff := cmp.Diff(executed, o.Executed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(refused, o.Refused); diff != "" {
		t.Error(diff)
	}
	if want := strconv.Quote(real(t, "id")) + ` was not allowed to run: add it to binaries.allowed of policy "agents".`; !strings.HasSuffix(o.Message, want) {
		t.Errorf("the message is %s", o.Message)
	}
	isolation := &result.Isolation{Self: self(), Network: result.NetworkPod, Way: rules.WayLandlock, LandlockABI: Prepare().LandlockABI, Programs: true, Writes: true, Signals: true}
	discardStage()
	if diff := cmp.Diff(isolation, o.Isolation); diff != "" {
		t.Error(diff)
	}
}

// real is a program's path without links.
func real(t testing.TB, name string) string {
	t.Helper()
	path, err := lookProgram([]string{name}, []string{"PATH=" + testPath}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestACommandThatIsNotListedDoesNotStart(t *testing.T) {
	cmd := inside(program("id"), "ls")
	cmd.Rules.Programs.Own = ""
	o := runIt(t, t.Context(), cmd)
	want{reason: result.CommandNotFound}.check(t, o)
	if !strings.Contains(o.Message, `id" was not allowed to run: add it`) {
		t.Errorf("the message is %s", o.Message)
	}
}

func TestAStageThatWasStartedAheadIsUsed(t *testing.T) {
	for range 3 {
		before := Prepare()
		if before.LandlockABI < 3 || !before.Listener || !before.AddDescriptor || !before.ReadMemory || !before.Trace {
			t.Fatalf("this machine gives %+v", before)
		}
		pid := ready.PID
		completed(itoa(pid)+"\n", "").check(t, runIt(t, t.Context(), inside(bash("echo $$"))))
	}
	Prepare()
	pid := ready.PID
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	completed("", "").check(t, runIt(t, t.Context(), inside(program("true"))))
	Prepare()
	completed("", "").check(t, runIt(t, t.Context(), program("true")))
}
