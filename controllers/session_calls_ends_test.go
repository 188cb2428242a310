package controllers_test

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
)

func testCancelWaiting(t *testing.T) {
	b := readyCallBench(t)
	first := b.hand("first")
	c := b.add("c")
	b.reconcile(c)
	b.cancel(c)
	b.reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	b.complete(first)
	b.reconcile(first)
	b.hearAll()
	if len(b.ledger.starts[string(c.UID)]) > 0 || b.p.find(string(c.UID)) != nil {
		t.Error("it was handed over")
	}
}

func testCancelRunning(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.cancel(c)
	b.reconcile(c)
	b.told(c)
	b.complete(c)
	b.reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

// The process says whether it had started.
func testCancelUnheard(t *testing.T) {
	b := readyCallBench(t)
	c := b.add("c")
	b.reconcile(c)
	b.cancel(c)
	b.reconcile(c)
	held := b.handed(c)
	b.told(c)
	b.p.work(held)
	b.sayAll()
	b.reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))

	lost := b.add("lost")
	b.reconcile(lost)
	b.p.connect()
	b.cancel(lost)
	b.reconcile(lost)
	b.expectCall(lost, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	b.hearAll()
	if len(b.ledger.starts) > 0 {
		t.Errorf("started: %+v", b.ledger.starts)
	}
}

func testCancelUnconnected(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.p.disconnect()
	b.cancel(c)
	b.reconcile(c)
	b.elapse(time.Hour)
	b.reconcile(c)
	if b.get(c).Status.Phase.Terminal() {
		t.Fatalf("it ended while only its process can say how: %+v", b.get(c).Status)
	}
	b.p.connect()
	b.reconcile(c)
	b.told(c)
	b.complete(c)
	b.reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

func testCancelLost(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.p.exit(corev1.PodFailed)
	b.cancel(c)
	b.reconcile(c)
	b.expectCall(c, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

// remove deletes a call, and waits until the cache shows it.
func (b *callBench) remove(c *v1alpha1.ToolCall) {
	b.t.Helper()
	if err := b.world.client.Delete(context.Background(), c, client.DisableReadYourWritesConsistency); err != nil {
		b.t.Fatal(err)
	}
	if len(c.Finalizers) > 0 {
		return
	}
	eventually(b.t, func() bool {
		return b.world.client.Get(context.Background(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{}) != nil
	})
}

// A name is free at once. The one that had it before is stopped, and the one that has it now runs once, whether or not anybody
// looked in between.
func testRecreation(t *testing.T) {
	for _, looked := range []bool{false, true} {
		for name, reach := range map[string]func(*callBench, *v1alpha1.ToolCall){
			"created":     func(*callBench, *v1alpha1.ToolCall) {},
			"handed over": func(b *callBench, c *v1alpha1.ToolCall) { b.reconcile(c) },
			"lost on the way": func(b *callBench, c *v1alpha1.ToolCall) {
				b.reconcile(c)
				b.p.connect()
			},
			"heard": func(b *callBench, c *v1alpha1.ToolCall) {
				b.reconcile(c)
				b.hearAll()
			},
			"running": func(b *callBench, c *v1alpha1.ToolCall) {
				b.reconcile(c)
				b.p.work(b.handed(c))
				b.sayAll()
			},
			"reported": func(b *callBench, c *v1alpha1.ToolCall) {
				b.reconcile(c)
				b.p.work(b.handed(c))
				b.complete(c)
			},
			"ended": func(b *callBench, c *v1alpha1.ToolCall) {
				b.reconcile(c)
				b.p.work(b.handed(c))
				b.complete(c)
				b.reconcile(c)
			},
		} {
			t.Run(name, func(t *testing.T) {
				b := readyCallBench(t)
				old := b.add("c")
				reach(b, old)
				b.remove(old)
				if looked {
					b.reconcile(old)
				}
				b.runAgain(old)
			})
		}
	}
}

// runAgain makes a call of a name again, and runs it.
func (b *callBench) runAgain(old *v1alpha1.ToolCall) {
	b.t.Helper()
	c := b.add(old.Name)
	for range 6 {
		b.reconcile(c)
		b.hearAll()
		for _, running := range b.p.running() {
			if running.UID == string(old.UID) && running.stopped == "" {
				// It isn't stopped yet.
				continue
			}
			b.p.work(running)
		}
		b.sayAll()
	}
	s := b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	starts := b.ledger.starts[string(c.UID)]
	if len(starts) != 1 || s.Stdout != starts[0].output {
		b.t.Errorf("it says %q, and was started %+v", s.Stdout, starts)
	}
	if b.hearAll(); len(b.p.calls) > 0 {
		b.t.Errorf("the process still has %d calls", len(b.p.calls))
	}
}

func testForeignFinalizer(t *testing.T) {
	held := func(c *v1alpha1.ToolCall) { c.Finalizers = []string{"example.com/held"} }
	b := readyCallBench(t)
	running, waiting := b.hand("running", held), b.add("waiting", held)
	b.reconcile(waiting)
	b.remove(running)
	b.remove(waiting)
	eventually(t, func() bool { b.reconcile(waiting); return b.get(waiting).Status.Phase.Terminal() })
	b.expectCall(waiting, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	eventually(t, func() bool { b.reconcile(running); b.hearAll(); return b.p.find(string(running.UID)).stopped != "" })
	b.expectCall(running, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	// What its process says then is answered.
	b.complete(running)
	eventually(t, func() bool { b.reconcile(running); b.hearAll(); return b.p.find(string(running.UID)) == nil })
	b.expectCall(running, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
}

func testInvalidResult(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	held := b.p.find(string(c.UID))
	b.p.answer(held.finish(&wire.Result{CallUID: held.UID, Outcome: result.Outcome{Reason: "Imagined", Started: true}}))
	b.sayAll()
	b.reconcile(c)
	b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	b.hearAll()
	next := b.hand("next")
	b.complete(next)
	b.reconcile(next)
	b.expectCall(next, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

func testNotStarted(t *testing.T) {
	b := readyCallBench(t)
	c := b.add("c")
	b.reconcile(c)
	held := b.handed(c)
	b.p.answer(held.finish(neverStarted(held.UID, "", result.WorkingDirNotFound).Result))
	b.sayAll()
	b.reconcile(c)
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
	for _, fate := range []failure{conflicts, timesOut, arrivesLate} {
		b.client.fate = func() failure { return fate }
		_, _ = b.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		if b.hearAll(); len(b.p.calls) != 1 {
			t.Fatal("a result that isn't written is acknowledged")
		}
	}
	b.client.fate = func() failure { return succeeds }
	b.restart()
	b.p.connect()
	b.sayAll()
	// What the operator before it wrote arrives now.
	b.client.late[0]()
	before := b.get(c).ResourceVersion
	eventually(t, func() bool {
		_, _ = b.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		b.hearAll()
		return len(b.p.calls) == 0
	})
	b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	if b.get(c).ResourceVersion != before {
		t.Error("the end is written twice")
	}
}

// The cache may show a call as unfinished whose result was acknowledged. The command isn't started again.
func testKnown(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	b.complete(c)
	if err := b.client.fallBehind(b.namespace); err != nil {
		t.Fatal(err)
	}
	b.reconcile(c)
	b.hearAll()
	// Another operator has not ended it itself.
	b.restart()
	b.p.connect()
	before := b.get(c).ResourceVersion
	for range 3 {
		b.reconcile(c)
		b.hearAll()
		b.sayAll()
	}
	if b.get(c).ResourceVersion != before || len(b.p.calls) > 0 {
		t.Errorf("it is written again: %+v", b.get(c).Status)
	}

	// As after a restored backup, its end is lost.
	lost := b.get(c)
	lost.Status = v1alpha1.ToolCallStatus{}
	if err := b.world.client.Status().Update(context.Background(), lost); err != nil {
		t.Fatal(err)
	}
	b.client.catchUp(lost)
	b.restart()
	b.p.connect()
	for range 3 {
		b.reconcile(c)
		b.hearAll()
		b.sayAll()
	}
	b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
}

// It comes to a process that has heard of the end, and still has a result.
func testSuspendedOnTheWay(t *testing.T) {
	b := readyCallBench(t, withWorkspace)
	server := b.hand("server", background)
	b.editSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = true })
	b.settle(b.session)
	b.told(server)
	b.complete(server)
	c := b.add("c")
	b.restart()
	b.p.connect()
	assignment := &wire.Assignment{CallUID: string(c.UID), CallName: c.Name, Argv: []string{"true"}, TimeoutMilliseconds: 1000, Decision: "sealed"}
	if err := b.p.session.AssignTo(string(b.session.UID), assignment); err != nil {
		t.Fatal(err)
	}
	b.hearAll()
	b.sayAll()
	b.reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonSessionSuspended)
	b.reconcile(server)
	b.expectCall(server, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	b.await(func() bool { return b.p.gone })
	b.settle(b.session)
	b.editSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = false })
	b.begin()
	b.reconcile(c)
	b.p.work(b.handed(c))
	b.complete(c)
	b.reconcile(c)
	if s := b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil); s.Session.Incarnation != 2 {
		t.Errorf("it ran in incarnation %d", s.Session.Incarnation)
	}
}

func testSessionEnds(t *testing.T) {
	b := readyCallBench(t)
	server, running, waiting := b.hand("server", background), b.hand("running"), b.add("waiting")
	b.reconcile(waiting)
	b.editSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.End = true })
	b.settle(b.session)
	b.told(server)
	b.told(running)
	b.complete(server)
	b.complete(running)
	for _, c := range []*v1alpha1.ToolCall{server, running, waiting} {
		b.reconcile(c)
	}
	b.expectCall(server, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	b.expectCall(running, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(false))
	b.expectCall(waiting, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))
	b.await(func() bool { return b.p.gone })
	b.settle(b.session)
	if slices.Contains(b.getSession(b.session).Finalizers, "toolcall.dev/session") {
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
			w := newWorld(t)
			w.vouchForRequesters()
			w.environment("env", asDefault)
			s, r := w.readySession("s", withWorkspace)
			call := w.callIn(s, "c")
			w.reconcile(call)
			m := r.receive()
			if m.Assign == nil {
				t.Fatalf("got %+v", m)
			}
			w.editSession(s, tc.stop)
			w.settle(s)
			if tc.answered {
				if err := r.conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(call.UID), Outcome: completed, Decision: m.Assign.Decision}}); err != nil {
					t.Fatal(err)
				}
				runner := w.hub.SessionByKey(w.getSession(s).Status.Runner.KeyHash)
				eventually(t, func() bool { held, _ := runner.HeldCall(string(call.UID)); return held.State == dispatch.Ended })
			}
			w.keepAfter(40*time.Second, s)
			job, _ := w.sessionJob(s)
			if *job.Spec.ActiveDeadlineSeconds == 1 {
				t.Error("its pod is ended at once")
			}
			w.keepAfter(30*time.Second, s)
			job, _ = w.sessionJob(s)
			if ended := *job.Spec.ActiveDeadlineSeconds == 1; ended == tc.answered {
				t.Errorf("70 s later its pod is ended: %t", ended)
			}
		})
	}
}
