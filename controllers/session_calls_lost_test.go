package controllers_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
)

func testLostPod(t *testing.T) {
	b := readyCallBench(t)
	running, waiting := b.hand("running"), b.add("waiting")
	b.reconcile(waiting)
	b.p.exit(corev1.PodFailed)
	b.settle(b.session)
	b.expect(b.session, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	b.reconcile(running)
	b.reconcile(waiting)
	b.expectCall(running, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	b.expectCall(waiting, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))
}

func testLostPodWithClaim(t *testing.T) {
	b := readyCallBench(t, withWorkspace)
	running, unheard, waiting := b.hand("running"), b.add("unheard", background), b.add("waiting")
	b.reconcile(unheard)
	b.reconcile(waiting)
	b.p.exit(corev1.PodFailed)
	b.settle(b.session)
	if now := b.getSession(b.session).Status; now.Pod == "" {
		t.Fatalf("the session lets go of a process that has calls: %+v", now)
	}
	for _, c := range []*v1alpha1.ToolCall{running, unheard, waiting} {
		b.reconcile(c)
	}
	s := b.expectCall(running, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	b.expectCall(unheard, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	if s.Session.Incarnation != 1 {
		t.Errorf("it says %+v", s.Session)
	}
	b.begin()
	b.reconcile(waiting)
	b.p.work(b.handed(waiting))
	b.complete(waiting)
	b.reconcile(waiting)
	if s := b.expectCall(waiting, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil); s.Session.Incarnation != 2 {
		t.Errorf("it ran in incarnation %d", s.Session.Incarnation)
	}
}

// Until the process says what it has, a call that was there before may be in it.
func testNewOperator(t *testing.T) {
	b := readyCallBench(t, concurrently(3))
	running, unheard := b.hand("running"), b.add("unheard")
	b.reconcile(unheard)
	b.p.disconnect()
	b.restart()
	later := b.add("later")
	b.cancel(unheard)
	for range 2 {
		for _, c := range []*v1alpha1.ToolCall{running, unheard, later} {
			b.reconcile(c)
		}
		b.elapse(2 * dispatch.ReconnectWait)
	}
	b.expectWaiting(later, v1alpha1.ReasonSessionStarting)
	for _, c := range []*v1alpha1.ToolCall{running, unheard} {
		if b.get(c).Status.Phase.Terminal() {
			t.Errorf("%s ended: %+v", c.Name, b.get(c).Status)
		}
	}
	b.p.connect()
	b.settle(b.session)
	for _, c := range []*v1alpha1.ToolCall{running, unheard, later} {
		b.reconcile(c)
	}
	b.hearAll()
	b.expectCall(unheard, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	b.handed(later)
	b.complete(running)
	b.reconcile(running)
	b.expectCall(running, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

// secondPod has a session lose its first pod, and get a second. The cache goes on to show the first.
func (b *callBench) secondPod(happens func()) {
	b.t.Helper()
	if err := b.client.fallBehind(b.namespace); err != nil {
		b.t.Fatal(err)
	}
	behind := b.client.sessions
	b.client.calls, b.client.sessions = nil, nil
	happens()
	b.settle(b.session)
	b.begin()
	b.client.sessions = behind
}

func testNewOperatorBehind(t *testing.T) {
	b := readyCallBench(t, withWorkspace)
	b.secondPod(func() { b.p.exit(corev1.PodFailed) })
	behind := b.client.sessions
	b.client.sessions = nil
	c := b.hand("c")
	b.client.sessions = behind
	b.restart()
	b.p.connect()
	for range 3 {
		b.reconcile(c)
	}
	if s := b.get(c).Status; s.Phase.Terminal() {
		t.Fatalf("while its process runs it, it ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	b.client.sessions = nil
	b.complete(c)
	b.reconcile(c)
	b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

// The first process may still be connected, and not know that its session has another one now.
func testNewOperatorAssignsNothingStale(t *testing.T) {
	b := readyCallBench(t, withWorkspace)
	first := b.p
	b.secondPod(func() {
		b.p.disconnect()
		b.editSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = true })
		b.settle(b.session)
		b.editSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = false })
	})
	second := b.p
	b.restart()
	first.connect()
	second.connect()
	c := b.add("c")
	look := func() bool {
		b.reconcile(c)
		b.hearAll()
		for first.hear() {
		}
		for _, p := range []*process{first, second} {
			for _, running := range p.running() {
				p.work(running)
			}
		}
		return len(b.ledger.starts[string(c.UID)]) > 0
	}
	look()
	b.client.sessions = nil
	eventually(t, look)
	look()
	if starts := b.ledger.starts[string(c.UID)]; len(starts) != 1 || starts[0].incarnation != 2 {
		t.Errorf("it was started %+v", starts)
	}
}

// Somebody takes the finalizer away that keeps the name of a session, and makes another of the name.
func testForcedSession(t *testing.T) {
	b := readyCallBench(t)
	c, unheard := b.hand("c"), b.add("unheard", background)
	b.reconcile(unheard)
	first := b.p
	b.deleteSession(b.session)
	now := b.getSession(b.session)
	now.Finalizers = nil
	if err := b.world.client.Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	b.session = b.world.session("s")
	b.begin()
	for range 2 {
		for _, call := range []*v1alpha1.ToolCall{c, unheard} {
			b.reconcile(call)
		}
		b.hearAll()
	}
	for _, call := range []*v1alpha1.ToolCall{c, unheard} {
		b.expectCall(call, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
		if b.p.find(string(call.UID)) != nil {
			t.Errorf("%s is handed over again", call.Name)
		}
	}
	first.disconnect()
}
