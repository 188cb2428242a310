package toolcall_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	callqueue "toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/testing/fixture"
)

// callBench is a world with a session, and the process in its pod.
type callBench struct {
	*fixture.World
	client  *fixture.Flaky
	ledger  *fixture.Ledger
	session *v1alpha1.ToolSession
	p       *fixture.Process
}

// newCallBench makes a session that has no pod yet.
func newCallBench(t *testing.T, change ...func(*v1alpha1.ToolSession)) *callBench {
	w := fixture.NewWorld(t)
	b := &callBench{World: w, client: &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure { return fixture.Succeeds }}, ledger: newLedger()}
	w.Use = b.client
	w.Rebuild()
	w.Environment("env", fixture.AsDefault)
	b.session = w.Session("s", change...)
	return b
}

// readyCallBench makes one that takes calls.
func readyCallBench(t *testing.T, change ...func(*v1alpha1.ToolSession)) *callBench {
	b := newCallBench(t, change...)
	b.begin()
	return b
}

// begin gives the session its next pod.
func (b *callBench) begin() {
	b.T.Helper()
	b.Settle(b.session)
	job, found := b.SessionJob(b.session)
	if !found {
		b.T.Fatal("the session has no Job")
	}
	pod := b.Pod(job)
	b.p = b.Process(b.RunnerConfig(job, pod), pod, b.ledger)
	b.p.Connect()
	b.Keep(b.session)
	b.await(func() bool { return b.p.Begun != nil })
	b.Expect(b.session, v1alpha1.SessionReady, v1alpha1.ReasonReady)
}

// hearAll handles what comes until nothing did for a while. await is for what must come.
func (b *callBench) hearAll() {
	for quiet := 0; quiet < 4; quiet++ {
		for b.p.Hear() {
			quiet = 0
		}
	}
}

// await hears until something is so.
func (b *callBench) await(is func() bool) {
	b.T.Helper()
	fixture.Eventually(b.T, func() bool {
		for b.p.Hear() {
		}
		return is()
	})
}

func (b *callBench) sayAll() {
	for b.p.Say() {
	}
}

// add makes a call, which the cache shows.
func (b *callBench) add(name string, change ...func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	b.T.Helper()
	c := b.CallIn(b.session, name, change...)
	b.Queue.Add(client.ObjectKeyFromObject(b.session), client.ObjectKeyFromObject(c), positionOf(c))
	return c
}

// handed waits until the process has a call.
func (b *callBench) handed(c *v1alpha1.ToolCall) *fixture.ProcessCall {
	b.T.Helper()
	b.await(func() bool { return b.p.Find(string(c.UID)) != nil })
	return b.p.Find(string(c.UID))
}

// told waits until the process knows that a call is to be stopped.
func (b *callBench) told(c *v1alpha1.ToolCall) {
	b.T.Helper()
	b.await(func() bool { return b.p.Find(string(c.UID)).Stopped != "" })
}

// hand has a call handed over, and its command started.
func (b *callBench) hand(name string, change ...func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	b.T.Helper()
	c := b.add(name, change...)
	b.Reconcile(c)
	b.p.Work(b.handed(c))
	b.sayAll()
	return c
}

// complete has a command end, and its result come.
func (b *callBench) complete(c *v1alpha1.ToolCall) {
	b.T.Helper()
	b.p.Work(b.p.Find(string(c.UID)))
	b.sayAll()
}

// expectCall compares how a call is.
func (b *callBench) expectCall(c *v1alpha1.ToolCall, phase v1alpha1.Phase, reason string, retrySafe *bool) *v1alpha1.ToolCallStatus {
	b.T.Helper()
	s := &b.Get(c).Status
	if s.Phase != phase || s.Reason != reason || ptr.Deref(s.RetrySafe, false) != ptr.Deref(retrySafe, false) || (s.RetrySafe == nil) != (retrySafe == nil) {
		b.T.Errorf("%s is %s/%s (%s), retrySafe %v, want %s/%s, %v", c.Name, s.Phase, s.Reason, s.Message, ptr.Deref(s.RetrySafe, false), phase, reason, ptr.Deref(retrySafe, false))
	}
	return s
}

// expectWaiting compares what a call says that it waits for.
func (b *callBench) expectWaiting(c *v1alpha1.ToolCall, reason string) {
	b.T.Helper()
	if reason == v1alpha1.ReasonQueued && len(b.Get(c).Status.Conditions) == 0 {
		// Nothing is written of a call that may have its turn soon.
		b.Elapse(5 * time.Second)
		b.Reconcile(c)
	}
	s := b.Get(c).Status
	started := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStarted)
	if s.Phase != v1alpha1.PhasePending || started == nil || started.Status != metav1.ConditionFalse || started.Reason != reason || s.Reason != reason || s.Message == "" || s.Session == nil {
		b.T.Errorf("%s is %s: %+v; want it to wait for %s", c.Name, s.Phase, s.Conditions, reason)
	}
}

// The commands of each subtest run in a session of its own. The admission policies, which say who created what, are for all.
func TestCallsInSessions(t *testing.T) {
	fixture.NewWorld(t).VouchForRequesters()
	for name, test := range map[string]func(*testing.T){
		"a short call costs one write":                            testAShortCallCostsOneWrite,
		"a call that goes on says so after a second":              testALongCallSaysSo,
		"calls run in the order of their creation":                testOrder,
		"a call whose pass fails isn't overtaken":                 testFailedPass,
		"background calls take no turns":                          testBackground,
		"a call waits for its session to start":                   testWaitsForTheStart,
		"a call that somebody labels keeps its place":             testLabelledCallKeepsItsPlace,
		"a call that nobody answers for keeps its place":          testUndecidedCallKeepsItsPlace,
		"a call that was accepted keeps its session":              testAcceptedCallKeepsItsSession,
		"a call that leaves the line wakes the next":              testLeavingCallsWakeTheNext,
		"a call waits while its session is suspended":             testWaitsForTheResumption,
		"a call wakes a session that was idle":                    testWakesAnIdleSession,
		"a call whose session isn't there fails":                  testSessionNotFound,
		"a call of a session that has ended fails":                testSessionEnded,
		"the last call that a session takes":                      testMaxCalls,
		"the policy in force when a call comes decides":           testPolicyChanges,
		"a call waits while its environment is suspended":         testEnvironmentSuspended,
		"results that nobody has written bound what is handed":    testUnacknowledged,
		"a call that waits for its session counts as pending":     testPendingBudget,
		"a finished call stays for five minutes":                  testRetention,
		"the last two hundred finished calls of a session stay":   testLastCalls,
		"nobody else may use a session":                           testSessionNotAllowed,
		"cancelled while it waits":                                testCancelWaiting,
		"cancelled while it runs":                                 testCancelRunning,
		"cancelled before its process heard of it":                testCancelUnheard,
		"cancelled while its process isn't connected":             testCancelUnconnected,
		"cancelled after its process was gone":                    testCancelLost,
		"deleted and made again at each point":                    testRecreation,
		"deleted while a foreign finalizer holds it":              testForeignFinalizer,
		"a result that isn't valid":                               testInvalidResult,
		"a command that couldn't be started":                      testNotStarted,
		"a result that was acknowledged before":                   testKnown,
		"a result that isn't written yet":                         testUnwrittenResult,
		"handed over just as the session was suspended":           testSuspendedOnTheWay,
		"the end of a session cancels what runs":                  testSessionEnds,
		"a session that is gone by force, and made again":         testForcedSession,
		"a pod without memory":                                    testPodOutOfMemory,
		"a lost pod without a claim":                              testLostPod,
		"a lost pod with a claim":                                 testLostPodWithClaim,
		"a new operator waits for what the process has":           testNewOperator,
		"a new operator whose cache shows the process before":     testNewOperatorBehind,
		"a new operator whose cache shows the pod before as live": testNewOperatorAssignsNothingStale,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // They mostly wait.
			test(t)
		})
	}
}

func testAShortCallCostsOneWrite(t *testing.T) {
	b := readyCallBench(t)
	before := b.client.Writes
	c := b.add("c")
	b.Reconcile(c)
	held := b.handed(c)
	if b.client.Writes != before {
		t.Fatalf("handed over with %d writes", b.client.Writes-before)
	}
	b.p.Work(held)
	b.sayAll()
	b.Reconcile(c)
	if b.client.Writes != before {
		t.Errorf("the start costs %d writes", b.client.Writes-before)
	}
	b.complete(c)
	b.Reconcile(c)
	if b.client.Writes != before+1 {
		t.Errorf("the call costs %d writes", b.client.Writes-before)
	}
	s := b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	now := b.GetSession(b.session).Status
	want := v1alpha1.CallSessionStatus{Name: "s", Incarnation: 1, Sequence: revision(c)}
	if s.Session == nil || *s.Session != want || s.Timings.Path != v1alpha1.PathSession || s.Pod != now.Pod || s.Node != now.Node || s.Pod == "" || s.Node == "" {
		t.Errorf("it says %+v, path %s, pod %s, node %s", s.Session, s.Timings.Path, s.Pod, s.Node)
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded} {
		if !meta.IsStatusConditionTrue(s.Conditions, kind) {
			t.Errorf("%s isn't true", kind)
		}
	}
	b.hearAll()
	b.Reconcile(c)
	if len(b.p.Calls) > 0 || b.client.Writes != before+1 {
		t.Errorf("the process still has %d calls, after %d writes", len(b.p.Calls), b.client.Writes-before)
	}
}

func testALongCallSaysSo(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	before := b.client.Writes
	if wake := b.Reconcile(c).RequeueAfter; wake <= 0 || wake > time.Second {
		t.Errorf("it is looked at again after %s", wake)
	}
	if b.client.Writes != before {
		t.Error("it is written at once")
	}
	b.Elapse(time.Second)
	b.Reconcile(c)
	b.Reconcile(c)
	s := b.Get(c).Status
	if s.Phase != v1alpha1.PhaseRunning || b.client.Writes != before+1 || s.Session.Incarnation != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStarted) {
		t.Errorf("after %d writes it says %+v", b.client.Writes-before, s)
	}
	b.complete(c)
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

// concurrently sets how many calls of a session run at a time.
func concurrently(n int32) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) { s.Spec.MaxConcurrentCalls = ptr.To(n) }
}

func testOrder(t *testing.T) {
	for _, limit := range []int{1, 3} {
		b := readyCallBench(t, concurrently(int32(limit)))
		var calls []*v1alpha1.ToolCall
		for i := range 7 {
			calls = append(calls, b.add(fmt.Sprint("c-", i)))
		}
		var ran []types.UID
		for range 12 {
			// The last comes first.
			for _, c := range slices.Backward(calls) {
				b.Reconcile(c)
			}
			for _, c := range calls {
				b.Reconcile(c)
			}
			b.hearAll()
			running := b.p.Running()
			if len(running) > limit {
				t.Fatalf("%d calls run", len(running))
			}
			if len(running) == 0 {
				continue
			}
			ran = append(ran, types.UID(running[0].UID))
			b.p.Work(running[0])
			b.p.Work(running[0])
			b.sayAll()
		}
		for i, c := range calls {
			b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
			if limit == 1 && ran[i] != c.UID {
				t.Errorf("call %d of the order was %s", i, ran[i])
			}
		}
	}
}

func testFailedPass(t *testing.T) {
	b := readyCallBench(t, concurrently(3))
	calls := []*v1alpha1.ToolCall{b.add("first"), b.add("second"), b.add("third")}
	for n := 1; ; n++ {
		seen := b.FailRead(n)
		err := b.PassError(calls[0])
		if *seen < n {
			break
		}
		if err == nil {
			t.Errorf("read %d failed, and the pass didn't", n)
		}
		b.FailRead(0)
		b.Reconcile(calls[1])
		if b.hearAll(); len(b.p.Calls) > 0 {
			t.Fatalf("read %d of the first call's pass failed, and the second is handed over", n)
		}
	}
	b.FailRead(0)
	// Each needs one pass more, and all run at the same time.
	b.handed(calls[0])
	for _, next := range calls[1:] {
		if !slices.Contains(b.Woken, next.Name) {
			t.Errorf("woken: %q, not %s", b.Woken, next.Name)
		}
		b.Reconcile(next)
		b.handed(next)
	}
}

func testBackground(t *testing.T) {
	b := readyCallBench(t)
	var servers []*v1alpha1.ToolCall
	for i := range wire.MaxBackgroundCalls + 1 {
		c := b.add(fmt.Sprint("server-", i), fixture.Background)
		servers = append(servers, c)
		b.Reconcile(c)
		b.hearAll()
	}
	if n := len(b.p.Running()); n != wire.MaxBackgroundCalls {
		t.Fatalf("%d background calls run", n)
	}
	b.expectWaiting(servers[wire.MaxBackgroundCalls], v1alpha1.ReasonQueued)
	c := b.hand("c")
	next := b.add("next")
	b.Reconcile(next)
	b.expectWaiting(next, v1alpha1.ReasonQueued)
	b.complete(c)
	b.Reconcile(c)
	if !slices.Contains(b.Woken, "next") {
		t.Errorf("woken: %q", b.Woken)
	}
	b.Reconcile(next)
	b.handed(next)
}

// turnOf is a call's place in the line of its session, as it enters the cache.
func positionOf(c *v1alpha1.ToolCall) callqueue.Position {
	return callqueue.Position{UID: c.UID, Sequence: revision(c), Background: c.Spec.Background, FirstSeen: time.Now()}
}
