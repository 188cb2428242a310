package e2e

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestTimeLimit(t *testing.T) {
	everyWay(t, testTimeLimit)
}

func testTimeLimit(t *testing.T, w way) {
	sp := w.newSpace(t)
	for name, test := range map[string]struct {
		command string
		want    outcome
		// least is how long it runs at least.
		least time.Duration
	}{
		"keeps the output so far": {
			command: "echo so far; sleep 600",
			want:    stopped(v1alpha1.ReasonTimedOut, "SIGTERM", "so far\n"),
			least:   3 * time.Second,
		},
		"kills a process that ignores SIGTERM after five seconds": {
			command: `trap "" TERM; echo deaf; while :; do sleep 1; done 2>/dev/null`,
			want:    stopped(v1alpha1.ReasonTimedOut, "SIGKILL", "deaf\n"),
			least:   8 * time.Second,
		},
		"gives a process that handles SIGTERM the time for it": {
			command: `trap "echo bye; exit 3" TERM; echo hello; sleep 600 & wait`,
			want:    stopped(v1alpha1.ReasonTimedOut, "", "hello\nbye\n"),
			least:   3 * time.Second,
		},
		"ends the background children too": {
			command: "setsid sleep 600 & (sleep 600 &) ; echo parent; sleep 600",
			want:    stopped(v1alpha1.ReasonTimedOut, "SIGTERM", "parent\n"),
			least:   3 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, within(3, shell(test.command)))
			expect(t, call, test.want)
			expectMessage(t, call, "limit of 3 s")
			if took := time.Duration(*call.Status.DurationMilliseconds) * time.Millisecond; took < test.least {
				t.Errorf("it took %s, less than %s", took, test.least)
			}
		})
	}
}

// A child in the background that keeps the pipe open neither delays the result nor outlives the command.
func TestBackgroundChildDoesNotHoldTheResult(t *testing.T) {
	sessionFirst(t, testBackgroundChildDoesNotHoldTheResult, wayCold, wayWarm, wayImage)
}

func testBackgroundChildDoesNotHoldTheResult(t *testing.T, w way) {
	sp := w.newSpace(t)
	marker := "e2e-child-" + sp.namespace
	call := sp.run(t, shell("(exec -a "+marker+" sleep 600) & echo done"))
	expect(t, call, succeeded("done\n"))
	if took := call.Status.DurationMilliseconds; took == nil || *took > 60_000 {
		t.Errorf("the command waited for its child, which sleeps for ten minutes: %v ms", took)
	}
	if left := sp.processes(t, marker); left != nil {
		t.Errorf("processes %v of the call still run", left)
	}
}

func TestDeletingARunningCallEndsItsProcess(t *testing.T) {
	coldFirst(t, testDeletingARunningCallEndsItsProcess, waySession, wayWarm, wayImage)
}

func testDeletingARunningCallEndsItsProcess(t *testing.T, w way) {
	sp := w.newSpace(t)
	marker := "e2e-deleted-" + sp.namespace
	call := sp.create(t, shell("(exec -a "+marker+" sleep 600) & (exec setsid -f bash -c 'exec -a "+marker+" sleep 600'); echo running; wait"))
	running := sp.awaitLine(t, call, "running")
	if found := sp.processes(t, marker); len(found) < 2 {
		t.Fatalf("only processes %v of the call run", found)
	}
	must(t, sp.client.Delete(t.Context(), call))
	sp.awaitGone(t, call.DeepCopy())
	sp.awaitNoJob(t, running)
	if left := sp.processes(t, marker); left != nil {
		t.Errorf("processes %v outlived the call and its pod", left)
	}
}

func TestCancelWhileRunning(t *testing.T) {
	everyWay(t, testCancelWhileRunning)
}

func testCancelWhileRunning(t *testing.T, w way) {
	sp := w.newSpace(t)
	call := sp.create(t, shell(`trap "echo got SIGTERM; exit 7" TERM; echo running; sleep 600 & wait`))
	running := sp.awaitLine(t, call, "running")
	sp.cancel(t, running)
	done := sp.awaitFinished(t, call)
	expect(t, done, outcome{
		Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested,
		Stdout: "running\ngot SIGTERM\n", RetrySafe: ptr.To(false),
	})
	sp.awaitNoJob(t, call)
}

func TestCancelBeforeTheStart(t *testing.T) {
	coldFirst(t, testCancelBeforeTheStart, wayWarm, wayImage)
}

func testCancelBeforeTheStart(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newEnvironment(t, "nowhere", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.NodeSelector = map[string]string{"e2e.toolcall.dev/no-such-label": "true"}
	})
	want := outcome{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested, RetrySafe: ptr.To(true)}
	t.Run("while its pod waits", func(t *testing.T) {
		t.Parallel()
		call := sp.create(t, in("nowhere", shell("echo never")))
		sp.cancel(t, sp.awaitPhase(t, call, v1alpha1.PhasePending))
		expect(t, sp.awaitFinished(t, call), want)
		sp.awaitNoJob(t, call)
	})
	t.Run("when it is created", func(t *testing.T) {
		t.Parallel()
		spec := shell("echo never")
		spec.Cancel = true
		call := sp.run(t, spec)
		expect(t, call, want)
		if jobs := sp.jobs(t, call); len(jobs) != 0 {
			t.Errorf("a Job was made: %s", jobs[0].Name)
		}
	})
}

func TestCancelOfAFinishedCallIsIgnored(t *testing.T) {
	coldFirst(t, testCancelOfAFinishedCallIsIgnored, waySession, wayWarm, wayImage)
}

func testCancelOfAFinishedCallIsIgnored(t *testing.T, w way) {
	sp := w.newSpace(t)
	call := sp.run(t, shell("echo done"))
	sp.cancel(t, call)
	// The operator handles calls in order of their changes only one by one; another call's end, begun after
	// the cancel, shows that it had the time.
	sp.run(t, shell("echo next"))
	again := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), keyOf(call), again))
	expect(t, again, succeeded("done\n"))
}

func TestFinishedCallsAreDeletedInTime(t *testing.T) {
	coldFirst(t, testFinishedCallsAreDeletedInTime, waySession)
}

func testFinishedCallsAreDeletedInTime(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newEnvironment(t, "brief", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.TTLSecondsAfterFinished = ptr.To(int32(1)) })
	own := shell("echo short life")
	own.TTLSecondsAfterFinished = ptr.To(int32(1))
	for name, spec := range map[string]v1alpha1.ToolCallSpec{
		"by the call's own value":     own,
		"by the environment's value":  in("brief", shell("echo short life")),
		"also when it didn't succeed": in("brief", shell("exit 1")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if sp.way == waySession && spec.TTLSecondsAfterFinished == nil {
				t.Skip("only the call's own value holds in a session")
			}
			call := sp.create(t, spec)
			done := sp.awaitFinished(t, call)
			sp.awaitGone(t, call.DeepCopy())
			sp.awaitNoJob(t, call)
			if done.Status.Job != "" {
				sp.awaitGone(t, secret(sp.namespace, done.Status.Job))
			}
		})
	}
}
