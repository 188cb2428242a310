package shim

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

func TestNothingOfACommandIsLeftWhileOthersGoOn(t *testing.T) {
	b := newBench(t, 2)
	ready, daemon := b.fifo("ready"), b.fifo("daemon")
	ctx, stop := context.WithCancel(t.Context())
	other := b.start(ctx, bash(`{ echo $$; setsid bash -c 'echo $$; exec sleep 600 >/dev/null' & } >`+ready+`; wait`))
	others := b.pids(b.read(ready))
	for range 3 {
		ended := b.start(t.Context(), bash(daemons(daemon)+chain+"exit 3"))
		own := b.pids(b.read(daemon))
		if o := <-ended; o.Reason != result.NonZeroExit || *o.ExitCode != 3 {
			t.Errorf("got %s", reason(o))
		}
		if len(own) != 2 || slices.ContainsFunc(own, isThere) {
			t.Errorf("of the processes %v some are left", own)
		}
		if slices.ContainsFunc(others, func(pid int) bool { return !isThere(pid) }) {
			t.Fatalf("of the other command's processes %v some are gone", others)
		}
	}
	stop()
	if o := <-other; o.Reason != result.CancelRequested || slices.ContainsFunc(others, isThere) {
		t.Errorf("the other command: %s", reason(o))
	}
}

func TestACommandGetsWhatItIsGiven(t *testing.T) {
	b := newBench(t, 1)
	dir, err := os.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := bash(`cat; pwd; printf %s "$ODD" | od -An -tx1; echo err >&2; exit 5`)
	cmd.Env = append(cmd.Env, "ODD=\xff\xfe")
	cmd.Stdin, cmd.DirFD, cmd.Dir = []byte("in\x00put\n"), dir, "/nonexistent"
	before := time.Now()
	o := b.Run(t.Context(), cmd)
	want := "in\x00put\n" + b.dir + "\n ff fe\n"
	if text(o.Stdout) != want || text(o.Stderr) != "err\n" || *o.ExitCode != 5 {
		t.Errorf("got %q, %q, %s", text(o.Stdout), text(o.Stderr), reason(o))
	}
	if o.StartTime.Before(before.Round(0)) || !o.CompletionTime.After(o.StartTime) {
		t.Errorf("begun at %s, and said to be from %s to %s", before, o.StartTime, o.CompletionTime)
	}
	if o := b.run(t.Context(), runner.Command{Argv: []string{"no-such-program"}, Env: cmd.Env, Dir: "/"}); o.Reason != result.CommandNotFound || o.Started {
		t.Errorf("a program that isn't there: %s", reason(o))
	}
}

func TestNothingCarriesOverFromCommandToCommandInOneShim(t *testing.T) {
	b := newBench(t, 1)
	shims := map[string]int{}
	for range 5 {
		o := b.run(t.Context(), bash(`echo $PPID; echo $(umask) $(pwd) ${X-unset} $(ulimit -c) >&2; umask 777; cd /tmp; export X=1; sleep 600 & disown`))
		if o.Reason != result.Completed || text(o.Stderr) != "0022 / unset 0\n" {
			t.Errorf("got %s, %q", reason(o), text(o.Stderr))
		}
		shims[text(o.Stdout)]++
	}
	if len(shims) > 2 {
		t.Errorf("the commands ran in %v", shims)
	}
}

func TestACommandThatKillsItsShimLeavesNothing(t *testing.T) {
	b := newBench(t, 2)
	ready, daemon := b.fifo("ready"), b.fifo("daemon")
	other := b.start(t.Context(), bash(`echo $$ >`+ready+`; exec sleep 600`))
	others := b.pids(b.read(ready))
	for range 3 {
		ended := b.start(t.Context(), bash("echo said; "+daemons(daemon)+chain+"kill -9 $PPID; sleep 600"))
		own := b.pids(b.read(daemon))
		o := <-ended
		if o.Reason != result.Signaled || !o.Started || text(o.Stdout) != "said\n" {
			t.Errorf("got %s", reason(o))
		}
		if slices.ContainsFunc(own, isThere) || !isThere(others[0]) {
			t.Errorf("of the processes %v some are left, or %v is gone", own, others)
		}
		if o := b.run(t.Context(), bash("echo fine")); text(o.Stdout) != "fine\n" {
			t.Errorf("the next command: %s", reason(o))
		}
	}
	if o := b.run(t.Context(), bash(fmt.Sprintf("kill -9 %d", others[0]))); o.Reason != result.Completed {
		t.Error(reason(o))
	}
	if o := <-other; o.Signal != "SIGKILL" {
		t.Errorf("the other command: %s", reason(o))
	}
}

func TestChainsOfProcessesEndWithTheirCommandWhileOthersGoOn(t *testing.T) {
	b := newBench(t, 2)
	chains, ready := b.chains(), b.fifo("ready")
	other := b.start(t.Context(), bash(`echo $$ >`+ready+`; exec sleep 600`))
	others := b.pids(b.read(ready))
	for name, end := range map[string]string{"with their shim": "exit 3", "without it": "kill -9 $PPID; sleep 600"} {
		if o := b.run(t.Context(), bash(chains+end)); !o.Started || b.survivors > 0 {
			t.Errorf("%s: %s", name, reason(o))
		}
		b.children.Lock()
		strays := b.strays()
		b.children.Unlock()
		if len(strays) > 0 || !isThere(others[0]) {
			t.Errorf("%s: %v are left, or %v is gone", name, strays, others)
		}
	}
	b.run(t.Context(), bash(fmt.Sprintf("kill -9 %d", others[0])))
	<-other
}

func TestACommandThatCantBeEndedCostsTheProcess(t *testing.T) {
	b := newBench(t, 1)
	// Nothing ends in no time.
	b.strayLimit = -time.Second
	o := b.run(t.Context(), bash("kill -9 $PPID; sleep 600"))
	if b.survivors != 1 || !strings.HasSuffix(o.Message, "The session's pod ends, because processes of this call could not be ended.") {
		t.Errorf("got %s, and was told %d times", reason(o), b.survivors)
	}
	b.endLeft()
}

// endLeft ends what could not be ended.
func (b *bench) endLeft() {
	b.t.Helper()
	b.strayLimit = defaultStrayLimit
	b.children.Lock()
	defer b.children.Unlock()
	left := slices.DeleteFunc(proc.Children(proc.Threads()...), func(pid int) bool { return b.shims[pid] })
	if !b.endStrays(left...) {
		b.t.Error("something is left")
	}
}

// A tracer that doesn't wait for what it traces keeps its end from the parent.
func TestAShimThatACommandTracesHoldsUpNobody(t *testing.T) {
	needs(t, "python3")
	b := newBench(t, 2)
	traced, err := b.take()
	if err != nil {
		t.Fatal(err)
	}
	said := b.fifo("said")
	ctx, cancel := context.WithCancel(t.Context())
	const seize = 0x4206
	tracer := b.start(ctx, bash(fmt.Sprintf(`exec python3 -c 'import ctypes, time
seized = ctypes.CDLL(None).ptrace(%d, %d, None, None)
print(seized, file=open("%s", "w"), flush=True); time.sleep(600)'`, seize, traced.pid, said)))
	isTraced := b.read(said) == "0"
	b.strayLimit = 50 * time.Millisecond
	ended := make(chan bool, 1)
	go func() { ended <- b.discard(traced) }()
	select {
	case isEnded := <-ended:
		if isTraced && (isEnded || b.survivors != 1) {
			t.Errorf("it has ended: %v, and %d times something had not", isEnded, b.survivors)
		}
	case <-time.After(10 * time.Second):
		t.Error("whoever ends it waits for its tracer")
		defer func() { <-ended }()
	}
	cancel()
	if o := <-tracer; o.Reason != result.CancelRequested {
		t.Error(reason(o))
	}
	b.endLeft()
	if !isTraced {
		t.Skip("a command can't trace a shim here")
	}
}

func TestAShimThatDoesNotAnswerIsEnded(t *testing.T) {
	b := newBench(t, 1)
	b.overdue = 10 * time.Millisecond
	for name, c := range map[string]struct {
		timeout time.Duration
		cancel  bool
		reason  string
		message string
	}{
		"after the timeout": {10 * time.Millisecond, false, result.TimedOut, "The command was stopped at its limit of 0.3 s."},
		"after a stop":      {0, true, result.CancelRequested, "The command was stopped on request."},
	} {
		stopped := b.fifo(strings.ReplaceAll(name, " ", "-"))
		cmd := bash(`kill -STOP $PPID; echo $$ >` + stopped + `; exec sleep 600`)
		cmd.TimeoutMilliseconds, cmd.Grace = c.timeout.Milliseconds(), 10*time.Millisecond
		if c.timeout > 0 {
			// The script must get to stop its shim first.
			cmd.TimeoutMilliseconds = 300
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := b.start(ctx, cmd)
		pid := b.pids(b.read(stopped))[0]
		if c.cancel {
			cancel()
		}
		if o := <-ended; o.Reason != c.reason || o.Message != c.message || !o.Started || isThere(pid) {
			t.Errorf("%s: %s; the command is there: %v", name, reason(o), isThere(pid))
		}
		cancel()
	}
}

// A command that is larger than what a socket holds needs a shim that reads it.
func TestAStoppedIdleShimIsReplaced(t *testing.T) {
	b := newBench(t, 1)
	b.overdue = time.Second
	if o := b.run(t.Context(), bash("true")); o.Reason != result.Completed {
		t.Fatal(reason(o))
	}
	for isReady := false; !isReady; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		if isReady = !b.starting; isReady {
			for _, s := range b.idle {
				_ = unix.Kill(s.pid, unix.SIGSTOP)
			}
		}
		b.mu.Unlock()
	}
	cmd := bash(`printf %s "${#A} ${#B}"`)
	cmd.Env = append(cmd.Env, "A="+strings.Repeat("a", 100<<10), "B="+strings.Repeat("b", 100<<10), "C="+strings.Repeat("c", 100<<10))
	select {
	case o := <-b.start(t.Context(), cmd):
		if text(o.Stdout) != "102400 102400" {
			t.Errorf("got %q, %s", text(o.Stdout), reason(o))
		}
	case <-time.After(time.Minute):
		t.Fatal("the command waits for a shim that is stopped")
	}
}

func TestAStopIsForItsCommandOnly(t *testing.T) {
	b := newBench(t, 1)
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(runner.Stop{Reason: result.SessionEnded, Message: "before"})
	if o := b.run(stopped, bash("echo x")); o.Started || o.Reason != result.SessionEnded || o.Message != "before" {
		t.Errorf("stopped before its start: %s", reason(o))
	}
	for range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := b.start(ctx, bash("exec sleep 600"))
		cancel(runner.Stop{Reason: result.PodLost, Message: "at once"})
		if o := <-ended; o.Reason != result.PodLost {
			t.Errorf("stopped at some point: %s", reason(o))
		}
		if o := b.run(t.Context(), bash("echo next")); text(o.Stdout) != "next\n" {
			t.Errorf("the next command: %s", reason(o))
		}
	}
}

func TestAnIdleShimThatIsGoneIsReplaced(t *testing.T) {
	b := newBench(t, 1)
	if o := b.run(t.Context(), bash("true")); o.Reason != result.Completed {
		t.Fatal(reason(o))
	}
	b.mu.Lock()
	idle := slices.Clone(b.idle)
	b.mu.Unlock()
	for _, s := range idle {
		s.kill()
		if _, err := receive(s.conn, &reply{}, maxReply); err == nil {
			t.Fatal("the shim lives")
		}
	}
	if o := b.run(t.Context(), bash("echo again")); text(o.Stdout) != "again\n" {
		t.Errorf("got %s", reason(o))
	}
}

func TestAShimHoldsNoVariables(t *testing.T) {
	t.Setenv("SECRET", "swordfish")
	b := newBench(t, 1)
	pid := b.pids(strings.TrimSpace(text(b.run(t.Context(), bash("echo $PPID")).Stdout)))[0]
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && string(environ) != "PATH="+os.Getenv("PATH")+"\x00" {
		t.Errorf("the shim has %q", environ)
	}
}

func TestCommandsWithRulesRunBesideOthers(t *testing.T) {
	b := newBench(t, 3)
	held := func(script string) runner.Command {
		cmd := bash(script)
		cmd.Rules = &rules.Rules{Policy: "p", WritePaths: []string{b.dir}, Programs: &rules.Programs{Own: "bash", Allowed: []string{"ls", "sleep", "kill"}}}
		return cmd
	}
	ready := b.fifo("ready")
	victim := b.start(t.Context(), bash("echo $$ $PPID >"+ready+"; exec sleep 600"))
	victims := b.pids(b.read(ready))
	var ended []<-chan result.Outcome
	for range 3 {
		ended = append(ended, b.start(t.Context(), held("ls -d /; id; exit 4")))
	}
	for _, e := range ended {
		o := <-e
		if o.Reason == result.IsolationUnavailable {
			t.Skip(o.Message)
		}
		if *o.ExitCode != 4 || text(o.Stdout) != "/\n" || len(o.Refused) != 1 || len(o.Executed) != 2 {
			t.Errorf("got %s, %q, refused %v, executed %v", reason(o), text(o.Stdout), o.Refused, o.Executed)
		}
	}
	o := b.run(t.Context(), held(fmt.Sprintf("kill -9 %d; kill -9 %d; kill -9 $PPID; echo still", victims[0], victims[1])))
	if o.Isolation == nil || !o.Isolation.Signals {
		t.Skip("signals can't be held here")
	}
	if text(o.Stdout) != "still\n" || !isThere(victims[0]) || !isThere(victims[1]) {
		t.Errorf("a command in a domain signals: %s, %q", reason(o), text(o.Stdout))
	}
	if o := b.run(t.Context(), bash(fmt.Sprintf("kill %d", victims[0]))); o.Reason != result.Completed {
		t.Error(reason(o))
	}
	<-victim
}

func TestAStageIsStartedAheadForTheNextCommandWithRules(t *testing.T) {
	b := newBench(t, 1)
	cmd := bash("echo $PPID")
	cmd.Rules = &rules.Rules{Policy: "p", WritePaths: []string{b.dir}, Programs: &rules.Programs{Own: "bash"}}
	o := b.run(t.Context(), cmd)
	if o.Reason == result.IsolationUnavailable {
		t.Skip(o.Message)
	}
	pid := b.pids(strings.TrimSpace(text(o.Stdout)))[0]
	for !hasChild(pid) {
		if !isThere(pid) {
			t.Fatal("the shim is gone")
		}
		time.Sleep(time.Millisecond)
	}
}

func hasChild(pid int) bool {
	for _, p := range proc.All() {
		if p.Parent == pid {
			return true
		}
	}
	return false
}

// A shim counts what its command takes, and not what its commands before took.
func TestEachCommandOfAShimHasAUsageOfItsOwn(t *testing.T) {
	b := newBench(t, 1)
	burns := b.Run(t.Context(), bash("for ((i = 0; i < 200000; i++)); do :; done"))
	idles := b.Run(t.Context(), bash("true"))
	for name, o := range map[string]*int64{"burns": burns.Usage.CPUMilliseconds, "idles": idles.Usage.CPUMilliseconds} {
		if o == nil {
			t.Fatalf("nobody knows what the command took that %s", name)
		}
	}
	if *burns.Usage.CPUMilliseconds < 2**idles.Usage.CPUMilliseconds || burns.Usage.PeakProcesses != nil {
		t.Errorf("one took %d ms, then another %d ms", *burns.Usage.CPUMilliseconds, *idles.Usage.CPUMilliseconds)
	}
}
