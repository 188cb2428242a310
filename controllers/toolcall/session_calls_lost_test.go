package toolcall_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/testing/fixture"
)

func testLostPod(t *testing.T) {
	b := readyCallBench(t)
	running, waiting := b.hand("running"), b.add("waiting")
	b.Reconcile(waiting)
	b.p.Exit(corev1.PodFailed)
	b.Settle(b.session)
	b.Expect(b.session, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	b.Reconcile(running)
	b.Reconcile(waiting)
	b.expectCall(running, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	b.expectCall(waiting, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))
}

// The kernel killed the whole container. The session's end may be written before anybody looks after the call.
func testPodOutOfMemory(t *testing.T) {
	b := readyCallBench(t)
	running, cancelled := b.hand("running"), b.add("cancelled", fixture.Background)
	b.Reconcile(cancelled)
	b.Cancel(cancelled)
	b.p.RunOutOfMemory()
	b.Settle(b.session)
	b.Expect(b.session, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	for _, c := range []*v1alpha1.ToolCall{running, cancelled} {
		b.Reconcile(c)
		if s := b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonOOMKilled, ptr.To(false)); s.Signal != "SIGKILL" || !strings.Contains(s.Message, "memory") {
			t.Errorf("it says %s: %s", s.Signal, s.Message)
		}
	}
}

func testLostPodWithClaim(t *testing.T) {
	b := readyCallBench(t, fixture.WithWorkspace)
	running, unheard, waiting := b.hand("running"), b.add("unheard", fixture.Background), b.add("waiting")
	b.Reconcile(unheard)
	b.Reconcile(waiting)
	b.p.Exit(corev1.PodFailed)
	b.Settle(b.session)
	if now := b.GetSession(b.session).Status; now.Pod == "" {
		t.Fatalf("the session lets go of a process that has calls: %+v", now)
	}
	for _, c := range []*v1alpha1.ToolCall{running, unheard, waiting} {
		b.Reconcile(c)
	}
	s := b.expectCall(running, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	b.expectCall(unheard, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false))
	if s.Session.Incarnation != 1 {
		t.Errorf("it says %+v", s.Session)
	}
	b.begin()
	b.Reconcile(waiting)
	b.p.Work(b.handed(waiting))
	b.complete(waiting)
	b.Reconcile(waiting)
	if s := b.expectCall(waiting, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil); s.Session.Incarnation != 2 {
		t.Errorf("it ran in incarnation %d", s.Session.Incarnation)
	}
}

// Until the process says what it has, a call that was there before may be in it.
func testNewOperator(t *testing.T) {
	b := readyCallBench(t, concurrently(3))
	running, unheard := b.hand("running"), b.add("unheard")
	b.Reconcile(unheard)
	b.p.Disconnect()
	b.Restart()
	later := b.add("later")
	b.Cancel(unheard)
	for range 2 {
		for _, c := range []*v1alpha1.ToolCall{running, unheard, later} {
			b.Reconcile(c)
		}
		b.Elapse(2 * dispatch.ReconnectWait)
	}
	b.expectWaiting(later, v1alpha1.ReasonSessionStarting)
	for _, c := range []*v1alpha1.ToolCall{running, unheard} {
		if b.Get(c).Status.Phase.Terminal() {
			t.Errorf("%s ended: %+v", c.Name, b.Get(c).Status)
		}
	}
	b.p.Connect()
	b.Settle(b.session)
	for _, c := range []*v1alpha1.ToolCall{running, unheard, later} {
		b.Reconcile(c)
	}
	b.hearAll()
	b.expectCall(unheard, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, ptr.To(true))
	b.handed(later)
	b.complete(running)
	b.Reconcile(running)
	b.expectCall(running, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

// secondPod has a session lose its first pod, and get a second. The cache goes on to show the first.
func (b *callBench) secondPod(happens func()) {
	b.T.Helper()
	if err := b.client.FallBehind(b.Namespace); err != nil {
		b.T.Fatal(err)
	}
	behind := b.client.Sessions
	b.client.Calls, b.client.Sessions = nil, nil
	happens()
	b.Settle(b.session)
	b.begin()
	b.client.Sessions = behind
}

func testNewOperatorBehind(t *testing.T) {
	b := readyCallBench(t, fixture.WithWorkspace)
	b.secondPod(func() { b.p.Exit(corev1.PodFailed) })
	behind := b.client.Sessions
	b.client.Sessions = nil
	c := b.hand("c")
	b.client.Sessions = behind
	b.Restart()
	b.p.Connect()
	for range 3 {
		b.Reconcile(c)
	}
	if s := b.Get(c).Status; s.Phase.Terminal() {
		t.Fatalf("while its process runs it, it ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	b.client.Sessions = nil
	b.complete(c)
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

// The first process may still be connected, and not know that its session has another one now.
func testNewOperatorAssignsNothingStale(t *testing.T) {
	b := readyCallBench(t, fixture.WithWorkspace)
	first := b.p
	b.secondPod(func() {
		b.p.Disconnect()
		b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = true })
		b.Settle(b.session)
		b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = false })
	})
	second := b.p
	b.Restart()
	first.Connect()
	second.Connect()
	c := b.add("c")
	look := func() bool {
		b.Reconcile(c)
		b.hearAll()
		for first.Hear() {
		}
		for _, p := range []*fixture.Process{first, second} {
			for _, running := range p.Running() {
				p.Work(running)
			}
		}
		return len(b.ledger.Starts[string(c.UID)]) > 0
	}
	look()
	b.client.Sessions = nil
	fixture.Eventually(t, look)
	look()
	if starts := b.ledger.Starts[string(c.UID)]; len(starts) != 1 || starts[0].Incarnation != 2 {
		t.Errorf("it was started %+v", starts)
	}
}

// Somebody takes the finalizer away that keeps the name of a session, and makes another of the name.
func testForcedSession(t *testing.T) {
	b := readyCallBench(t)
	c, unheard := b.hand("c"), b.add("unheard", fixture.Background)
	b.Reconcile(unheard)
	first := b.p
	b.DeleteSession(b.session)
	now := b.GetSession(b.session)
	now.Finalizers = nil
	if err := b.World.Client.Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	b.session = b.World.Session("s")
	b.begin()
	for range 2 {
		for _, call := range []*v1alpha1.ToolCall{c, unheard} {
			b.Reconcile(call)
		}
		b.hearAll()
	}
	for _, call := range []*v1alpha1.ToolCall{c, unheard} {
		if s := b.expectCall(call, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, ptr.To(false)); !strings.Contains(s.Message, "was deleted or replaced") {
			t.Errorf("%s says %q", call.Name, s.Message)
		}
		if b.p.Find(string(call.UID)) != nil {
			t.Errorf("%s is handed over again", call.Name)
		}
	}
	first.Disconnect()
}
