package toolcall_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	callqueue "toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

func concurrentCalls(n int32) v1alpha1.ToolBudgetSpec {
	return v1alpha1.ToolBudgetSpec{MaxConcurrentCalls: &n}
}

// expectOverBudget wants a call that waits, and a message that has all of these parts.
func expectOverBudget(w *fixture.World, call *v1alpha1.ToolCall, parts ...string) {
	w.T.Helper()
	s := w.Get(call).Status
	if s.Phase != v1alpha1.PhasePending || s.Reason != v1alpha1.ReasonBudgetExhausted || s.Job != "" {
		w.T.Errorf("%s is %s/%s (%s), with Job %q", call.Name, s.Phase, s.Reason, s.Message, s.Job)
	}
	for _, part := range parts {
		if !strings.Contains(s.Message, part) {
			w.T.Errorf("%s says %q, without %q", call.Name, s.Message, part)
		}
	}
}

// started are the names of the calls that have a Job.
func started(w *fixture.World) map[string]bool {
	w.T.Helper()
	jobs := &batchv1.JobList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), jobs, client.InNamespace(w.Namespace)); err != nil {
		w.T.Fatal(err)
	}
	names := map[string]bool{}
	for i := range jobs.Items {
		for _, owner := range jobs.Items[i].OwnerReferences {
			names[owner.Name] = true
		}
	}
	return names
}

// Two hundred calls at once under a limit of five, in two environments: there are never more than five, and they start in the order of
// their creation, also under an operator that has just started and looks at the last one first.
func TestABudgetBoundsHowManyCallsRun(t *testing.T) {
	const limit, all, finish = 5, 200, 40
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.Environment("other")
	budget := w.Budget("b", concurrentCalls(limit))
	w.KeepBudget(budget)
	var waiting []*v1alpha1.ToolCall
	for i := range all {
		waiting = append(waiting, w.Call(fmt.Sprintf("c-%03d", i), func(c *v1alpha1.ToolCall) {
			if i%2 == 1 {
				c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "other"}
			}
		}))
	}
	for _, c := range waiting {
		w.Reconcile(c)
	}
	expectOverBudget(w, waiting[limit], `"b"`, "5 calls", "maxConcurrentCalls")
	ended := map[string]bool{}
	for i := range finish {
		if i == finish/2 {
			w.Restart()
			for _, c := range slices.Backward(waiting) {
				w.Reconcile(c)
			}
		}
		now := started(w)
		for name := range ended {
			delete(now, name)
		}
		if len(now) != limit || !now[waiting[0].Name] || !now[waiting[limit-1].Name] {
			t.Fatalf("after %d calls, %v have a place", i, now)
		}
		w.Woken = nil
		w.FinishOne(waiting[0])
		ended[waiting[0].Name] = true
		waiting = waiting[1:]
		if want := []string{waiting[limit-1].Name}; !slices.Equal(w.Woken, want) {
			t.Fatalf("woken: %q, want %q", w.Woken, want)
		}
		w.Reconcile(waiting[limit-1])
	}
	if s := w.KeepBudget(budget).Status; s.Used == nil || s.Used.ConcurrentCalls != limit || s.Used.PendingBytes == 0 || s.ObservedGeneration != budget.Generation {
		t.Errorf("the budget says %+v", s)
	}
}

// What runs when a budget is made counts in it, who waits for one that is deleted goes on, and other users' budgets don't matter.
func TestABudgetComesAndGoes(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	by := func(user string) func(*v1alpha1.ToolCall) {
		return func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Username: user} }
	}
	first, second, other := w.Call("first", by("alice")), w.Call("second", by("alice")), w.Call("other", by("bob"))
	w.Reconcile(first)
	budget := w.Budget("b", v1alpha1.ToolBudgetSpec{MaxConcurrentCalls: ptr.To[int32](1), Subjects: []v1alpha1.BudgetSubject{{Kind: v1alpha1.BudgetUser, Name: "alice"}}})
	w.Reconcile(second)
	w.Reconcile(other)
	expectOverBudget(w, second)
	if !w.HasJob(other) {
		t.Error("another user's call waits")
	}
	before := w.Get(second).ResourceVersion
	w.Reconcile(second)
	if w.Get(second).ResourceVersion != before {
		t.Error("waiting writes again and again")
	}
	if err := w.Client.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	w.Woken = nil
	if w.KeepBudget(budget) != nil || !slices.Equal(w.Woken, []string{"second"}) {
		t.Errorf("woken: %q", w.Woken)
	}
	w.Reconcile(second)
	if !w.HasJob(second) {
		t.Error("it waits for a budget that is gone")
	}
}

func TestWhatABudgetNeverGivesIsDenied(t *testing.T) {
	for name, spec := range map[string]v1alpha1.ToolBudgetSpec{
		"no call may run": concurrentCalls(0),
		"no CPU time":     {CPUSecondsPerHour: ptr.To[int64](0)},
		"too much input":  {MaxPendingBytes: ptr.To[int64](100)},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			w.Budget("b", spec)
			call := w.Call("c", func(c *v1alpha1.ToolCall) { c.Spec.Stdin = strings.Repeat("x", 200) })
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseDenied || s.Reason != v1alpha1.ReasonBudgetExceeded || w.HasJob(call) {
				t.Errorf("it is %s/%s (%s)", s.Phase, s.Reason, s.Message)
			}
		})
	}
}

func TestInputWaitsForRoomInItsBudget(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.Budget("b", v1alpha1.ToolBudgetSpec{MaxPendingBytes: ptr.To[int64](300)})
	large := func(c *v1alpha1.ToolCall) { c.Spec.Stdin = strings.Repeat("x", 200) }
	first, second := w.Call("first", large), w.Call("second", large)
	w.Reconcile(first)
	w.Reconcile(second)
	expectOverBudget(w, second, "300 bytes", "maxPendingBytes")
	w.Restart()
	w.Reconcile(second)
	expectOverBudget(w, second)
	w.Start(first)
	if !slices.Contains(w.Woken, "second") {
		t.Errorf("woken: %q", w.Woken)
	}
	w.Reconcile(second)
	if !w.HasJob(second) {
		t.Errorf("it still waits: %+v", w.Get(second).Status)
	}
}

// The CPU time of calls that ended before the operator started counts as far as these calls are still there.
func TestCallsWaitUntilTheirCPUTimeIsInThePast(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	ended := w.Clock.Now().Add(-30 * time.Minute)
	w.Spent("long-ago", ended.Add(-time.Hour), 100_000)
	w.Spent("spent", ended, 9_000)
	w.Budget("b", v1alpha1.ToolBudgetSpec{CPUSecondsPerHour: ptr.To[int64](9)})
	call := w.Call("c")
	wait := w.Reconcile(call).RequeueAfter
	passes := ended.Truncate(time.Minute).Add(61 * time.Minute)
	expectOverBudget(w, call, "9 seconds", "cpuSecondsPerHour", passes.UTC().Format(time.RFC3339))
	if at := w.Clock.Now().Add(wait); !at.Equal(passes) {
		t.Errorf("it is looked at again at %s, want %s", at, passes)
	}
	w.Clock.Set(passes)
	w.Reconcile(call)
	if !w.HasJob(call) {
		t.Errorf("it still waits: %+v", w.Get(call).Status)
	}
}

// A write of a call's end that comes through without the operator hearing of it counts as another, and later passes over the call count nothing.
func TestTheCPUTimeOfACallCountsOnceWhoeverSeesItsEnd(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	budget := w.Budget("b", v1alpha1.ToolBudgetSpec{CPUSecondsPerHour: ptr.To[int64](100)})
	outcome := fixture.Completed
	outcome.Usage = &result.Usage{CPUMilliseconds: ptr.To[int64](3000)}
	for i, how := range []fixture.Failure{fixture.Succeeds, fixture.AnswerIsLost} {
		call := w.Call(fmt.Sprint("c-", i))
		w.Reconcile(call)
		w.Start(call).Report(w, call.UID, outcome)
		if err := w.FailingPass(call, how); (err != nil) != (how == fixture.AnswerIsLost) || !w.Get(call).Status.Phase.Terminal() {
			t.Fatalf("%v, and the call is %s", err, w.Get(call).Status.Phase)
		}
		fixture.Eventually(t, func() bool { return w.PassError(call) == nil })
		// By then the operator doesn't remember the call.
		w.Elapse(time.Minute)
		w.Reconcile(call)
		if used := w.KeepBudget(budget).Status.Used; used == nil || used.CPUSeconds != int64(3*(i+1)) {
			t.Errorf("after %d calls of 3 s, the budget says %+v", i+1, used)
		}
	}
}

// A session's call that waits for its budget holds up those behind it, has nothing of the budget while its session can't run it, and
// counts for as long as it runs, also under an operator that hasn't heard the session's process yet.
func TestASessionsCallsCountInBudgets(t *testing.T) {
	fixture.NewWorld(t).VouchForRequesters()
	b := readyCallBench(t, concurrently(3))
	b.Budget("b", concurrentCalls(1))
	first := b.hand("first")
	alone := b.Call("alone")
	b.Reconcile(alone)
	expectOverBudget(b.World, alone)
	second, third := b.add("second"), b.add("third")
	b.Reconcile(second)
	b.Reconcile(third)
	b.expectWaiting(second, v1alpha1.ReasonBudgetExhausted)
	b.expectWaiting(third, v1alpha1.ReasonQueued)
	if err := b.World.Client.Delete(t.Context(), alone); err != nil {
		t.Fatal(err)
	}
	b.Reconcile(alone)
	b.Woken = nil
	b.complete(first)
	b.Reconcile(first)
	if !slices.Contains(b.Woken, "second") {
		t.Errorf("woken: %q", b.Woken)
	}
	b.Reconcile(second)
	b.handed(second)
	b.Reconcile(third)
	b.expectWaiting(third, v1alpha1.ReasonBudgetExhausted)

	b.Restart()
	other := b.Call("other")
	b.Reconcile(other)
	expectOverBudget(b.World, other)
}

// A call that has a place in its environment and not yet in its budget keeps nobody waiting who has the budget's place already.
func TestWhoWaitsForABudgetKeepsNoPlaceInTheEnvironment(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To[int32](1) })
	w.Environment("other")
	running, queued := w.Call("running"), w.Call("queued")
	w.Reconcile(running)
	w.Reconcile(queued)
	elsewhere := w.Call("elsewhere", func(c *v1alpha1.ToolCall) {
		c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "other"}
	})
	w.Budget("b", concurrentCalls(2))
	w.Reconcile(elsewhere)
	w.FinishOne(running)
	_ = env
	// It has the environment's place now, without having asked the budget.
	late := w.Call("late")
	w.Reconcile(late)
	w.Reconcile(queued)
	w.Reconcile(late)
	w.Reconcile(queued)
	if !w.HasJob(late) && !w.HasJob(queued) {
		t.Errorf("neither runs: %+v, %+v", w.Get(late).Status.Conditions, w.Get(queued).Status.Conditions)
	}
}

// The first call of a session takes room for its input, whatever those behind it, who wait for it, have.
func TestASessionsFirstCallDoesNotWaitForTheInputOfThoseBehindIt(t *testing.T) {
	fixture.NewWorld(t).VouchForRequesters()
	b := readyCallBench(t, concurrently(1))
	b.Budget("b", v1alpha1.ToolBudgetSpec{MaxPendingBytes: ptr.To[int64](300)})
	large := func(c *v1alpha1.ToolCall) { c.Spec.Stdin = strings.Repeat("x", 200) }
	running := b.hand("running")
	first, second := b.add("first", large), b.add("second", large)
	b.Reconcile(second)
	b.Reconcile(first)
	b.expectWaiting(second, v1alpha1.ReasonQueued)
	b.complete(running)
	b.Reconcile(running)
	b.Reconcile(first)
	b.handed(first)
}

// To read what is in use in a namespace may take minutes. Changes of other budgets count meanwhile.
func TestABudgetThatTakesLongToReadHoldsUpNoOther(t *testing.T) {
	w := fixture.NewWorld(t)
	held := make(chan struct{})
	var isHeld atomic.Bool
	w.ManageBudgets(func(ctx context.Context, namespace string) error {
		if isHeld.CompareAndSwap(false, true) {
			<-held
		}
		return w.Reconciler.SeedBudgets(ctx, namespace)
	})
	// Cleanups run last in, first out: the manager ends only after its workers.
	t.Cleanup(func() { close(held) })
	w.Budget("slow", concurrentCalls(1))
	fixture.Eventually(t, isHeld.Load)
	other := w.Budget("other", concurrentCalls(1))
	fixture.Eventually(t, func() bool {
		now := &v1alpha1.ToolBudget{}
		err := fixture.Shared.GetAPIReader().Get(t.Context(), client.ObjectKeyFromObject(other), now)
		return err == nil && meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// What is in use may take minutes to read, and what waits for that says so.
func TestWhatWaitsForItsBudgetsToBeReadSaysSo(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.Budget("b", concurrentCalls(1))
	call, session := w.Call("c"), w.Session("s")
	w.Elapse(2 * time.Second)
	err := w.Budgets.Seed(t.Context(), w.Namespace, func(context.Context) (callqueue.LedgerSnapshot, error) {
		w.Reconcile(call)
		expectOverBudget(w, call, "is being read")
		w.Keep(session)
		w.Expect(session, v1alpha1.SessionPending, v1alpha1.ReasonBudgetExhausted)
		return callqueue.LedgerSnapshot{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Reconcile(call)
	if !w.HasJob(call) {
		t.Errorf("afterwards it is %+v", w.Get(call).Status)
	}
}
