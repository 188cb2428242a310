package runner

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
)

// untilSaid is a context that ends, with cause, when the process has written text.
func untilSaid(t *testing.T, text string, cause error) (context.Context, *trigger) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, &trigger{text: []byte(text), fire: func() { cancel(cause) }}
}

type trigger struct {
	mu   sync.Mutex
	text []byte
	seen []byte
	fire func()
}

func (w *trigger) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, p...)
	if bytes.Contains(w.seen, w.text) {
		w.fire()
	}
	return len(p), nil
}

func TestTimeoutKeepsOutputAndNamesTheLimit(t *testing.T) {
	cmd := bash("echo early; echo problem >&2; sleep infinity; echo late")
	cmd.TimeoutMilliseconds = 1000
	o := runIt(t, t.Context(), cmd)
	out, err := "early\n", "problem\n"
	want{result.TimedOut, nil, "SIGTERM", &out, &err}.check(t, o)
	if !strings.Contains(o.Message, "limit of 1 s") {
		t.Errorf("message %q doesn't give the limit", o.Message)
	}
	if o.DurationMS < cmd.TimeoutMilliseconds {
		t.Errorf("it was stopped after %d ms", o.DurationMS)
	}
}

func TestTimeoutOfAProcessThatEndsWellOnSIGTERM(t *testing.T) {
	cmd := bash("trap 'echo bye; exit 0' TERM; sleep infinity & wait")
	cmd.TimeoutMilliseconds = 1000
	o := runIt(t, t.Context(), cmd)
	out := "bye\n"
	want{reason: result.TimedOut, stdout: &out}.check(t, o)
}

func TestCancelOf(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		signal string
	}{
		"a process that ends on SIGTERM":      {"echo ready; sleep infinity", "SIGTERM"},
		"one that ignores SIGTERM":            {"trap '' TERM; echo ready; while :; do sleep infinity; done", "SIGKILL"},
		"one that stopped itself":             {"trap 'exit 0' TERM; echo ready; kill -STOP $$; sleep infinity", ""},
		"one that closed its streams":         {"echo ready; exec >&- 2>&- <&-; sleep infinity", "SIGTERM"},
		"one with a child that ignores it":    {"bash -c 'trap \"\" TERM; echo ready; while :; do sleep infinity; done' & wait", "SIGTERM"},
		"one with a child in another session": {"setsid bash -c 'trap \"\" TERM; echo ready; while :; do sleep infinity; done' & wait", "SIGTERM"},
		"one with a daemon":                   {"(setsid bash -c 'echo ready; exec sleep infinity' &); sleep infinity", "SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stdout := untilSaid(t, "ready\n", context.Canceled)
			cmd := bash(c.script)
			cmd.Stdout = stdout
			cmd.Grace = 500 * time.Millisecond
			o := runIt(t, ctx, cmd)
			out := "ready\n"
			want{reason: result.CancelRequested, signal: c.signal, stdout: &out}.check(t, o)
		})
	}
}

func TestTheWholeTreeHasItsGrace(t *testing.T) {
	// The shell dies of SIGTERM at once; its child cleans up after that, and may.
	ctx, stdout := untilSaid(t, "ready\n", context.Canceled)
	cmd := bash(`bash -c 'trap "while kill -0 $PPID; do sleep 0.01; done 2>/dev/null; echo cleaned; exit" TERM; echo ready; while :; do sleep 0.1; done'; echo never`)
	cmd.Stdout = stdout
	o := runIt(t, ctx, cmd)
	if got := text(o.Stdout); got != "ready\ncleaned\n" {
		t.Errorf("got %s", describe(o))
	}
}

func TestTheCauseOfACancel(t *testing.T) {
	for name, c := range map[string]struct {
		cause   error
		reason  string
		message string
	}{
		"none":     {context.Canceled, result.CancelRequested, "stopped on request."},
		"an error": {errors.New("the pod is being deleted"), result.CancelRequested, "the pod is being deleted"},
		"a Stop":   {Stop{Reason: result.PodLost, Message: "The node is shutting down."}, result.PodLost, "The node is shutting down."},
		"deadline": {context.DeadlineExceeded, result.TimedOut, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stdout := untilSaid(t, "ready", c.cause)
			cmd := bash("echo ready; sleep infinity")
			cmd.Stdout = stdout
			o := runIt(t, ctx, cmd)
			want{reason: c.reason, signal: "SIGTERM"}.check(t, o)
			if !strings.Contains(o.Message, c.message) {
				t.Errorf("message %q", o.Message)
			}
		})
	}
}

func TestAStopThatKillsGivesNoGrace(t *testing.T) {
	ctx, stdout := untilSaid(t, "ready", Stop{Reason: result.OOMKilled, Message: "too much", Kill: true})
	cmd := bash("trap 'echo cleaned' TERM; echo ready; while :; do sleep 600; done")
	cmd.Stdout = stdout
	o := runIt(t, ctx, cmd)
	ready, none := "ready\n", ""
	want{reason: result.OOMKilled, signal: "SIGKILL", stdout: &ready, stderr: &none}.check(t, o)
}

func TestACancelBeforeTheStartStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	marker := publicDir(t) + "/ran"
	started := false
	cmd := program("touch", marker)
	cmd.OnStreams = func(kept.Output, kept.Output) { started = true }
	o := runIt(t, ctx, cmd)
	want{reason: result.CancelRequested}.check(t, o)
	if o.Started || started {
		t.Error("it was started")
	}
}

func TestNothingIsLeftAfterANormalEnd(t *testing.T) {
	for name, script := range map[string]string{
		"a child in the background":             "sleep infinity >/dev/null 2>&1 & echo done",
		"a child that holds the pipes":          "sleep infinity & echo done",
		"one that holds them, ignoring SIGTERM": "(trap '' TERM HUP; while :; do sleep infinity; done) & echo done",
		"a daemon, forked twice":                "(setsid sleep infinity &) ; echo done",
		"a stopped child":                       "sleep infinity & kill -STOP $!; echo done",
		"children of children":                  "for i in 1 2 3; do (for j in 1 2 3; do sleep infinity & done; wait) & done; echo done",
		"one that left its process group":       "set -m; sleep infinity & sleep infinity & echo done",
	} {
		t.Run(name, func(t *testing.T) {
			o := runIt(t, t.Context(), bash(script))
			completed("done\n", "").check(t, o)
			if o.LeftRunning < 1 {
				t.Error("the outcome doesn't say so")
			}
		})
	}
}

func TestAFilterMayFinishAfterItsShell(t *testing.T) {
	o := runIt(t, t.Context(), bash(`echo out > >(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; sed s/out/filtered/)`))
	completed("filtered\n", "").check(t, o)
	if o.LeftRunning != 0 {
		t.Errorf("%d processes were left running", o.LeftRunning)
	}
}

// childClock is a clock that stands still as long as a child of the command lives, whose number the command writes, and
// then is an hour ahead.
type childClock struct {
	mu      sync.Mutex
	written []byte
}

func (c *childClock) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = append(c.written, p...)
	return len(p), nil
}

func (c *childClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Unix(1_000_000, 0)
	if pid := number(string(c.written)); pid > 0 && unix.Kill(pid, 0) != nil {
		return at.Add(time.Hour)
	}
	return at
}

// number is what a command printed; 0 for anything else.
func number(text string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	return n
}

func TestTheDurationIsTheProcessesOwn(t *testing.T) {
	clock := &childClock{}
	cmd := bash("sleep infinity & echo $!")
	cmd.Stdout = clock
	cmd.now = clock.now
	o := runIt(t, t.Context(), cmd)
	if clock.now().Equal(o.CompletionTime) || number(text(o.Stdout)) <= 0 {
		t.Fatalf("the child didn't outlive the command: %s", describe(o))
	}
	if o.DurationMS != 0 || !o.CompletionTime.Equal(o.StartTime) {
		t.Errorf("the time in which a child held the pipes counts: %s", describe(o))
	}
}

func TestAProcessThatKillsItsOwnGroup(t *testing.T) {
	o := runIt(t, t.Context(), bash("echo out; kill -KILL 0"))
	out := "out\n"
	want{reason: result.Signaled, signal: "SIGKILL", stdout: &out}.check(t, o)
}

func TestProcessesThatKeepForkingAreEnded(t *testing.T) {
	needs(t, "bash")
	for name, script := range map[string]string{
		"many that fork and wait": `b() { while :; do sleep 0.01 & wait $!; done; }; for i in $(seq 30); do b & done; echo ready; wait`,
		"forking in sessions":     `for i in $(seq 10); do (while :; do setsid sleep 0.02; done) & done; echo ready; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stdout := untilSaid(t, "ready\n", context.Canceled)
			cmd := bash(script)
			cmd.Stdout, cmd.Grace = stdout, 200*time.Millisecond
			want{reason: result.CancelRequested, signal: "SIGTERM"}.check(t, runIt(t, ctx, cmd))
		})
	}
}

func TestAProcessThatIsNeverThereWhenOneLooks(t *testing.T) {
	cmd := helperCommand(t, "relay", "1000000")
	cmd.Stdout = nil
	o := runIt(t, t.Context(), cmd)
	completed("", "").check(t, o)
}

func TestOrphansAreReapedWhileItRuns(t *testing.T) {
	needs(t, "bash", "ps")
	o := runIt(t, t.Context(), bash(`for i in $(seq 50); do (setsid true &) ; done
		while ps -o stat= --ppid $PPID | grep -q ^Z; do sleep 0.01; done
		echo "no zombies"; exit 7`))
	out := "no zombies\n"
	want{reason: result.NonZeroExit, exit: result.Exit(7), stdout: &out}.check(t, o)
}
