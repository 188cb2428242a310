package runner

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
)

func spy(t *testing.T) supervision {
	return supervision{Argv: []string{publicSelf(t)}, Env: []string{"PATH=" + testPath, helperVariable + "=spy"}, Dir: "/"}
}

func TestACommandSeesNothingOfAHardenedSupervisor(t *testing.T) {
	attr := nobody(t)
	plain := superviseApart(t, spy(t), attr)
	// A domain hides what is outside.
	if rulesInForce() == nil && !strings.Contains(text(plain.Outcome.Stdout), "swordfish") {
		t.Errorf("the control can't read what isn't hidden: %s", describe(plain.Outcome))
	}
	s := spy(t)
	s.Harden = true
	completed("", "").check(t, superviseApart(t, s, attr).Outcome)
}

func TestTheFirstProcessOfAPodIsHidden(t *testing.T) {
	s := spy(t)
	s.Harden = true
	completed("", "").check(t, superviseApart(t, s, nil, asInit(t)...).Outcome)
}

// Some signals are deadly only while the supervisor starts a thread, so that each is sent often. The program kill queues them.
const everySignal = `for i in $(seq 1 50); do for s in $(seq 1 64); do case $s in %[1]s) ;; *) kill -$s $PPID 2>/dev/null;; esac; done; done
for s in $(seq 1 64); do case $s in %[1]s) ;; *) env kill -q 1 -$s $PPID 2>/dev/null;; esac; done; echo survived`

func TestSignalsOfACommandDontEndASupervisor(t *testing.T) {
	// Nobody can catch 9 and 19.
	s := supervision{
		Argv: []string{"bash", "-c", fmt.Sprintf(everySignal, "9|15|19")},
		Dir:  "/", Harden: true,
	}
	completed("survived\n", "").check(t, superviseApart(t, s, nobody(t)).Outcome)
}

func TestNoSignalOfACommandEndsTheFirstProcess(t *testing.T) {
	s := supervision{
		Argv: []string{"bash", "-c", fmt.Sprintf(everySignal, "15")},
		Dir:  "/", Harden: true,
	}
	completed("survived\n", "").check(t, superviseApart(t, s, nil, asInit(t)...).Outcome)
}

func TestNoSignalOfADescriptorEndsASupervisor(t *testing.T) {
	s := supervision{Argv: []string{publicSelf(t)}, Env: []string{"PATH=" + testPath, helperVariable + "=async"}, Dir: "/", Harden: true}
	t.Run("anywhere", func(t *testing.T) {
		completed("survived\n", "").check(t, superviseApart(t, s, nobody(t)).Outcome)
	})
	t.Run("as the first process", func(t *testing.T) {
		completed("survived\n", "").check(t, superviseApart(t, s, nil, asInit(t)...).Outcome)
	})
}

func TestAHardenedProcessStillPanics(t *testing.T) {
	cmd := exec.Command(publicSelf(t))
	cmd.Env = []string{helperVariable + "=fault"}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "nil pointer dereference") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestACommandStartsWithDefaultSignals(t *testing.T) {
	s := supervision{
		Argv: []string{"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}, Dir: "/", Harden: true,
	}
	outcome := superviseApart(t, s, nobody(t)).Outcome
	// What this test was itself started with ignored, of the three signals that C libraries keep for
	// themselves, Go can't set back.
	const ofLibraries = 1<<31 | 1<<32 | 1<<33
	lines := strings.Split(strings.TrimSpace(text(outcome.Stdout)), "\n")
	for _, line := range lines {
		name, mask, _ := strings.Cut(line, ":\t")
		bits, err := strconv.ParseUint(mask, 16, 64)
		if err != nil || bits&^ofLibraries != 0 {
			t.Errorf("%s is %s: %v", name, mask, err)
		}
	}
	if len(lines) != 2 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

func TestAnUnprivilegedHardenedSupervisorCanDoItsWork(t *testing.T) {
	dir := publicDir(t)
	for name, s := range map[string]supervision{
		"start in an open directory": {Argv: []string{"pwd", "-P"}, Dir: dir, OpenDir: true},
		"start without network": {Argv: []string{"bash", "-c", "pwd -P; ! (exec 3<>/dev/tcp/127.0.0.1/1) 2>/dev/null"},
			Dir: dir, OpenDir: true, DenyNetwork: true},
		"read its input": {Argv: []string{"bash", "-c", "pwd -P; [ $(cat) = in ]"}, Stdin: []byte("in"),
			Dir: dir, OpenDir: true},
	} {
		t.Run(name, func(t *testing.T) {
			s.Harden = true
			t.Run("anywhere", func(t *testing.T) {
				completed(dir+"\n", "").check(t, superviseApart(t, s, nobody(t)).Outcome)
			})
			t.Run("as the first process", func(t *testing.T) {
				completed(dir+"\n", "").check(t, superviseApart(t, s, nil, asInit(t)...).Outcome)
			})
		})
	}
}

func TestADirectoryThatMayNotBeEntered(t *testing.T) {
	s := supervision{Argv: []string{"true"}, Dir: "/root", Harden: true}
	if attr := nobody(t); attr != nil {
		o := superviseApart(t, s, attr).Outcome
		want{reason: result.WorkingDirNotAllowed}.check(t, o)
	}
}

func TestAsTheFirstProcessOfANamespace(t *testing.T) {
	for name, c := range map[string]struct {
		s    supervision
		want want
	}{
		"a normal end":         {supervision{Argv: []string{"echo", "hi"}}, completed("hi\n", "")},
		"an exit code":         {script("exit 42"), want{reason: result.NonZeroExit, exit: result.Exit(42)}},
		"a signal":             {script("kill -KILL $$"), want{reason: result.Signaled, signal: "SIGKILL"}},
		"not found":            {supervision{Argv: []string{"nosuch"}}, want{reason: result.CommandNotFound}},
		"a child that stays":   {script("sleep infinity & echo done"), completed("done\n", "")},
		"a daemon":             {script("(setsid sleep infinity >/dev/null 2>&1 &); echo done"), completed("done\n", "")},
		"one that is stubborn": {script("(trap '' TERM HUP; while :; do sleep infinity; done) & echo done"), completed("done\n", "")},
		"killing everything":   {script("echo out; kill -KILL -1; kill -KILL $$"), want{reason: result.Signaled, signal: "SIGKILL"}},
		"a chain that is never there when one looks": {supervision{Argv: []string{publicSelf(t), "1000000"},
			Env: []string{"PATH=" + testPath, helperVariable + "=relay"}}, completed("", "")},
		"orphans are reaped": {script(`for i in $(seq 50); do (setsid true &) ; done
			while ps -o stat= --ppid 1 | grep -q ^Z; do sleep 0.01; done; echo none`), completed("none\n", "")},
		"a timeout": {limited(script("trap '' TERM; (setsid bash -c \"trap '' TERM; while :; do sleep infinity; done\" &); while :; do sleep infinity; done")),
			want{reason: result.TimedOut, signal: "SIGKILL"}},
		"a timeout of one that stopped": {limited(script("kill -STOP $$")), want{reason: result.TimedOut, signal: "SIGTERM"}},
		"a timeout of many that fork": {limited(script("for i in $(seq 20); do (while :; do setsid sleep 0.02; done) & done; wait")),
			want{reason: result.TimedOut, signal: "SIGTERM"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Dir, c.s.Harden = "/", true
			r := superviseApart(t, c.s, nil, asInit(t)...)
			if r.PID != 1 {
				t.Fatalf("the supervisor was process %d", r.PID)
			}
			c.want.check(t, r.Outcome)
		})
	}
}

func script(text string) supervision { return supervision{Argv: []string{"bash", "-c", text}} }

func limited(s supervision) supervision {
	s.Timeout, s.Grace = 500*time.Millisecond, 300*time.Millisecond
	return s
}
