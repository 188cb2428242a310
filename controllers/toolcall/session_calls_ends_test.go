package toolcall_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/testing/fixture"
)

func testCancelWaiting(t *testing.T) {
	b := readyCallBench(t)
	first := b.hand("first")
	c := b.add("c")
	b.Reconcile(c)
	b.Cancel(c)
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	b.complete(first)
	b.Reconcile(first)
	b.hearAll()
	if len(b.ledger.Starts[string(c.UID)]) > 0 || b.p.Find(string(c.UID)) != nil {
		t.Error("it was handed over")
	}
}

func testCancelRunning(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.Cancel(c)
	b.Reconcile(c)
	b.told(c)
	b.complete(c)
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

// The process says whether it had started.
func testCancelUnheard(t *testing.T) {
	b := readyCallBench(t)
	c := b.add("c")
	b.Reconcile(c)
	b.Cancel(c)
	b.Reconcile(c)
	held := b.handed(c)
	b.told(c)
	b.p.Work(held)
	b.sayAll()
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))

	lost := b.add("lost")
	b.Reconcile(lost)
	b.p.Connect()
	b.Cancel(lost)
	b.Reconcile(lost)
	b.expectCall(lost, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	b.hearAll()
	if len(b.ledger.Starts) > 0 {
		t.Errorf("started: %+v", b.ledger.Starts)
	}
}

func testCancelUnconnected(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.p.Disconnect()
	b.Cancel(c)
	b.Reconcile(c)
	b.Elapse(time.Hour)
	b.Reconcile(c)
	if b.Get(c).Status.Phase.Terminal() {
		t.Fatalf("it ended while only its process can say how: %+v", b.Get(c).Status)
	}
	b.p.Connect()
	b.Reconcile(c)
	b.told(c)
	b.complete(c)
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

func testCancelLost(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.p.Exit(corev1.PodFailed)
	b.Cancel(c)
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

// remove deletes a call, and waits until the cache shows it.
func (b *callBench) remove(c *v1alpha1.ToolCall) {
	b.T.Helper()
	if err := b.World.Client.Delete(context.Background(), c, client.DisableReadYourWritesConsistency); err != nil {
		b.T.Fatal(err)
	}
	if len(c.Finalizers) > 0 {
		return
	}
	fixture.Eventually(b.T, func() bool {
		return b.World.Client.Get(context.Background(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{}) != nil
	})
}

// A name is free at once. The one that had it before is stopped, and the one that has it now runs once, whether or not anybody
// looked in between.
func testRecreation(t *testing.T) {
	for _, looked := range []bool{false, true} {
		for name, reach := range map[string]func(*callBench, *v1alpha1.ToolCall){
			"created":     func(*callBench, *v1alpha1.ToolCall) {},
			"handed over": func(b *callBench, c *v1alpha1.ToolCall) { b.Reconcile(c) },
			"lost on the way": func(b *callBench, c *v1alpha1.ToolCall) {
				b.Reconcile(c)
				b.p.Connect()
			},
			"heard": func(b *callBench, c *v1alpha1.ToolCall) {
				b.Reconcile(c)
				b.hearAll()
			},
			"running": func(b *callBench, c *v1alpha1.ToolCall) {
				b.Reconcile(c)
				b.p.Work(b.handed(c))
				b.sayAll()
			},
			"reported": func(b *callBench, c *v1alpha1.ToolCall) {
				b.Reconcile(c)
				b.p.Work(b.handed(c))
				b.complete(c)
			},
			"ended": func(b *callBench, c *v1alpha1.ToolCall) {
				b.Reconcile(c)
				b.p.Work(b.handed(c))
				b.complete(c)
				b.Reconcile(c)
			},
		} {
			t.Run(name, func(t *testing.T) {
				b := readyCallBench(t)
				old := b.add("c")
				reach(b, old)
				b.remove(old)
				if looked {
					b.Reconcile(old)
				}
				b.runAgain(old)
			})
		}
	}
}

// runAgain makes a call of a name again, and runs it.
func (b *callBench) runAgain(old *v1alpha1.ToolCall) {
	b.T.Helper()
	c := b.add(old.Name)
	for range 6 {
		b.Reconcile(c)
		b.hearAll()
		for _, running := range b.p.Running() {
			if running.UID == string(old.UID) && running.Stopped == "" {
				// It isn't stopped yet.
				continue
			}
			b.p.Work(running)
		}
		b.sayAll()
	}
	s := b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	starts := b.ledger.Starts[string(c.UID)]
	if len(starts) != 1 || s.Stdout != starts[0].Output {
		b.T.Errorf("it says %q, and was started %+v", s.Stdout, starts)
	}
	if b.hearAll(); len(b.p.Calls) > 0 {
		b.T.Errorf("the process still has %d calls", len(b.p.Calls))
	}
}

func testForeignFinalizer(t *testing.T) {
	held := func(c *v1alpha1.ToolCall) { c.Finalizers = []string{"example.com/held"} }
	b := readyCallBench(t)
	running, waiting := b.hand("running", held), b.add("waiting", held)
	b.Reconcile(waiting)
	b.remove(running)
	b.remove(waiting)
	fixture.Eventually(t, func() bool { b.Reconcile(waiting); return b.Get(waiting).Status.Phase.Terminal() })
	b.expectCall(waiting, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	fixture.Eventually(t, func() bool { b.Reconcile(running); b.hearAll(); return b.p.Find(string(running.UID)).Stopped != "" })
	b.expectCall(running, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	// What its process says then is answered.
	b.complete(running)
	fixture.Eventually(t, func() bool { b.Reconcile(running); b.hearAll(); return b.p.Find(string(running.UID)) == nil })
	b.expectCall(running, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

func testInvalidResult(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	held := b.p.Find(string(c.UID))
	b.p.Answer(held.Finish(&wire.Result{CallUID: held.UID, Outcome: result.Outcome{Reason: "Imagined", Started: true}}))
	b.sayAll()
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	b.hearAll()
	next := b.hand("next")
	b.complete(next)
	b.Reconcile(next)
	b.expectCall(next, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

func testNotStarted(t *testing.T) {
	b := readyCallBench(t)
	c := b.add("c")
	b.Reconcile(c)
	held := b.handed(c)
	b.p.Answer(held.Finish(fixture.NeverStarted(held.UID, "", result.WorkingDirNotFound).Result))
	b.sayAll()
	b.Reconcile(c)
	s := b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonWorkingDirNotFound, ptr.To(true))
	if s.Session.Incarnation != 1 {
		t.Errorf("it says %+v", s.Session)
	}
}

// A result that isn't written isn't acknowledged, and the next operator hears it.
func testUnwrittenResult(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.complete(c)
	for _, fate := range []fixture.Failure{fixture.Conflicts, fixture.TimesOut, fixture.ArrivesLate} {
		b.client.Fail = func() fixture.Failure { return fate }
		_, _ = b.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		if b.hearAll(); len(b.p.Calls) != 1 {
			t.Fatal("a result that isn't written is acknowledged")
		}
	}
	b.client.Fail = func() fixture.Failure { return fixture.Succeeds }
	b.Restart()
	b.p.Connect()
	b.sayAll()
	// What the operator before it wrote arrives now.
	b.client.Late[0]()
	before := b.Get(c).ResourceVersion
	fixture.Eventually(t, func() bool {
		_, _ = b.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		b.hearAll()
		return len(b.p.Calls) == 0
	})
	b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	if b.Get(c).ResourceVersion != before {
		t.Error("the end is written twice")
	}
}

// The cache may show a call as unfinished whose result was acknowledged. The command isn't started again.
func testKnown(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.complete(c)
	if err := b.client.FallBehind(b.Namespace); err != nil {
		t.Fatal(err)
	}
	b.Reconcile(c)
	b.hearAll()
	// Another operator has not ended it itself.
	b.Restart()
	b.p.Connect()
	before := b.Get(c).ResourceVersion
	for range 3 {
		b.Reconcile(c)
		b.hearAll()
		b.sayAll()
	}
	if b.Get(c).ResourceVersion != before || len(b.p.Calls) > 0 {
		t.Errorf("it is written again: %+v", b.Get(c).Status)
	}

	// As after a restored backup, its end is lost.
	lost := b.Get(c)
	lost.Status = v1alpha1.ToolCallStatus{}
	if err := b.World.Client.Status().Update(context.Background(), lost); err != nil {
		t.Fatal(err)
	}
	b.client.CatchUp(lost)
	b.Restart()
	b.p.Connect()
	for range 3 {
		b.Reconcile(c)
		b.hearAll()
		b.sayAll()
	}
	b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
}

// It comes to a process that has heard of the end, and still has a result.
func testSuspendedOnTheWay(t *testing.T) {
	b := readyCallBench(t, fixture.WithWorkspace)
	server := b.hand("server", fixture.Background)
	b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = true })
	b.Settle(b.session)
	b.told(server)
	b.complete(server)
	c := b.add("c")
	b.Restart()
	b.p.Connect()
	assignment := &wire.Assignment{CallUID: string(c.UID), CallName: c.Name, Argv: []string{"true"}, Bounds: spec.Bounds{TimeoutMilliseconds: 1000}, Decision: "sealed"}
	if err := b.p.Session.Assign(string(b.session.UID), assignment); err != nil {
		t.Fatal(err)
	}
	b.hearAll()
	b.sayAll()
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonSessionSuspended)
	b.Reconcile(server)
	b.expectCall(server, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	b.await(func() bool { return b.p.Gone })
	b.Settle(b.session)
	b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = false })
	b.begin()
	b.Reconcile(c)
	b.p.Work(b.handed(c))
	b.complete(c)
	b.Reconcile(c)
	if s := b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil); s.Session.Incarnation != 2 {
		t.Errorf("it ran in incarnation %d", s.Session.Incarnation)
	}
}

func testSessionEnds(t *testing.T) {
	b := readyCallBench(t)
	server, running, waiting := b.hand("server", fixture.Background), b.hand("running"), b.add("waiting")
	b.Reconcile(waiting)
	b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.End = true })
	b.Settle(b.session)
	b.told(server)
	b.told(running)
	b.complete(server)
	b.complete(running)
	for _, c := range []*v1alpha1.ToolCall{server, running, waiting} {
		b.Reconcile(c)
	}
	b.expectCall(server, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	b.expectCall(running, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	b.expectCall(waiting, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))
	b.await(func() bool { return b.p.Gone })
	b.Settle(b.session)
	if slices.Contains(b.GetSession(b.session).Finalizers, "toolcall.dev/session") {
		t.Error("the session's name isn't free")
	}
}

// A process that was told to end and doesn't isn't waited for until its Job's deadline.
func TestAConnectedProcessThatDoesNotEndItsCallIsEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		stop     func(*v1alpha1.ToolSessionSpec)
		answered bool
	}{
		"the session is ended":     {func(spec *v1alpha1.ToolSessionSpec) { spec.End = true }, false},
		"the session is suspended": {func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true }, false},
		"its result waits":         {func(spec *v1alpha1.ToolSessionSpec) { spec.End = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.VouchForRequesters()
			w.Environment("env", fixture.AsDefault)
			s, r := w.ReadySession("s", fixture.WithWorkspace)
			call := w.CallIn(s, "c")
			assigned := r.HandOver(w, call)
			w.EditSession(s, tc.stop)
			w.Settle(s)
			if tc.answered {
				if err := r.Conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(call.UID), Outcome: fixture.Completed, Decision: assigned.Decision}}); err != nil {
					t.Fatal(err)
				}
				runner := w.Hub.RunnerByKey(w.GetSession(s).Status.Runner.KeyHash)
				fixture.Eventually(t, func() bool { held, _ := runner.HeldCall(string(call.UID)); return held.State == dispatch.Ended })
			}
			w.KeepAfter(40*time.Second, s)
			job, _ := w.SessionJob(s)
			if *job.Spec.ActiveDeadlineSeconds == 1 {
				t.Error("its pod is ended at once")
			}
			w.KeepAfter(30*time.Second, s)
			job, _ = w.SessionJob(s)
			if ended := *job.Spec.ActiveDeadlineSeconds == 1; ended == tc.answered {
				t.Errorf("70 s later its pod is ended: %t", ended)
			}
		})
	}
}
