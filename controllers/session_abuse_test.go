package controllers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	callqueue "toolcall.dev/operator/internal/queue"
)

// enters is what the watch of calls does with each call, at the start too.
func (w *world) enters(s *v1alpha1.ToolSession, call *v1alpha1.ToolCall, sequence int64) {
	w.queue.Add(client.ObjectKeyFromObject(s), client.ObjectKeyFromObject(call),
		callqueue.Position{UID: call.UID, Sequence: sequence, Background: call.Spec.Background, FirstSeen: w.clock.Now()})
}

func (w *world) heldIn(s *v1alpha1.ToolSession, call *v1alpha1.ToolCall) (dispatch.HeldCall, bool) {
	runner := w.hub.SessionByKey(w.getSession(s).Status.Runner.KeyHash)
	if runner == nil {
		return dispatch.HeldCall{}, false
	}
	return runner.HeldCall(string(call.UID))
}

// A call that runs since before a restart keeps its place in the line of those that wait, and takes a turn twice.
func TestAfterARestartACallThatRunsDoesNotTakeATurnTwice(t *testing.T) {
	w := newWorld(t)
	w.vouchForRequesters()
	w.environment("env", asDefault)
	s, r := w.readySession("s", func(s *v1alpha1.ToolSession) { s.Spec.MaxConcurrentCalls = ptr.To[int32](2) })
	first := w.callIn(s, "first")
	w.reconcile(first)
	m := r.receive()
	if m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	w.elapse(3 * time.Second)
	w.reconcile(first) // Running is written
	r.conn.Close()
	w.restart()
	w.enters(s, first, 1)
	r.reconnect(w, wire.Held{UID: string(first.UID), Name: first.Name, State: wire.Running, Decision: m.Assign.Decision})
	w.settle(s)
	w.reconcile(first)
	second := w.callIn(s, "second")
	w.enters(s, second, 2)
	for range 5 {
		w.reconcile(second)
		w.elapse(2 * time.Second)
	}
	if _, has := w.heldIn(s, second); !has {
		t.Errorf("two may run at a time, one runs, and the second waits: %+v", w.get(second).Status.Conditions)
	}
}

// Who may not use a session doesn't decide what stays of its calls.
func TestRefusedCallsOfOthersDoNotPushOutASessionsResults(t *testing.T) {
	w := newWorld(t)
	w.vouchForRequesters()
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	victim := w.callIn(s, "victim")
	w.reconcile(victim)
	m := r.receive()
	if m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	if err := r.conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(victim.UID), Outcome: completed, Decision: m.Assign.Decision}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { held, _ := w.heldIn(s, victim); return held.State == dispatch.Ended })
	w.reconcile(victim)
	if p := w.get(victim).Status.Phase; p != v1alpha1.PhaseSucceeded {
		t.Fatalf("the victim ended %s", p)
	}
	w.grant(rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}, "toolcalls", nil, "create")
	mallory := w.as("mallory")
	reason := ""
	for i := range 200 {
		c := lsCall(w.namespace, fmt.Sprint("m-", i))
		c.Spec.SessionRef = &v1alpha1.SessionReference{Name: s.Name}
		eventually(t, func() bool { return mallory.Create(context.Background(), c) == nil })
		eventually(t, func() bool {
			return w.client.Get(context.Background(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{}) == nil
		})
		w.reconcile(c)
		reason = w.get(c).Status.Reason
	}
	t.Log("mallory's calls end", reason)
	w.reconcile(victim)
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(victim), &v1alpha1.ToolCall{}); err != nil {
		t.Errorf("the result of the session's own call, seconds old: %v", err)
	}
}

// A call that was handed over, and whose session a user let go by force, may have run, also for an operator that starts.
func TestACallThatRanIsNotSafeToRetryWhenItsSessionIsGone(t *testing.T) {
	w := newWorld(t)
	w.vouchForRequesters()
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	call := w.callIn(s, "c")
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	now := w.getSession(s)
	before := now.DeepCopy()
	now.Finalizers = nil
	if err := w.client.Patch(context.Background(), now, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.deleteSession(s)
	eventually(t, func() bool {
		return w.client.Get(context.Background(), client.ObjectKeyFromObject(s), &v1alpha1.ToolSession{}) != nil
	})
	w.restart()
	for range 3 {
		w.reconcile(call)
		w.elapse(2 * time.Second)
	}
	if st := w.get(call).Status; st.RetrySafe == nil || *st.RetrySafe {
		t.Errorf("its command runs, and it ends %s/%s, retrySafe %v", st.Phase, st.Reason, ptr.Deref(st.RetrySafe, false))
	}
}

// stale is a cache that shows one call as it was, for ever.
type stale struct {
	client.Client
	call *v1alpha1.ToolCall
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if call, ok := o.(*v1alpha1.ToolCall); ok && key == client.ObjectKeyFromObject(s.call) {
		s.call.DeepCopyInto(call)
		return nil
	}
	return s.Client.Get(ctx, key, o, opts...)
}

// A new leader whose cache of calls is behind, and a session of the same name made anew: its first pod has incarnation 1.
func TestACallThatEndedIsNotHandedToTheNextSessionOfTheName(t *testing.T) {
	w := newWorld(t)
	w.vouchForRequesters()
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	call := w.callIn(s, "c")
	asItWas := w.get(call)
	w.reconcile(call)
	m := r.receive()
	if m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	if err := r.conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(call.UID), Outcome: completed, Decision: m.Assign.Decision}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { held, _ := w.heldIn(s, call); return held.State == dispatch.Ended })
	w.reconcile(call)
	w.deleteSession(s)
	w.settle(s)
	eventually(t, func() bool {
		return w.client.Get(context.Background(), client.ObjectKeyFromObject(s), &v1alpha1.ToolSession{}) != nil
	})
	next, r2 := w.readySession("s")
	w.use = stale{w.client, asItWas}
	w.restart()
	r2.reconnect(w)
	w.settle(next)
	w.elapse(2 * time.Second)
	w.reconcile(call)
	if _, has := w.heldIn(next, call); has {
		t.Errorf("the call, which is %s, was handed over again, to another session's process", w.get(call).Status.Phase)
	}
}

// A runner that a lagging leader gave to a session never takes the call that records it.
func TestACallWhoseRunnerServesASessionEnds(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	var r *runner
	for _, one := range w.warmUp(env) {
		r = one
	}
	call := w.call("c")
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	r.conn.Close()
	w.restart()
	r.connect(w, "")
	if err := w.hub.Session(r.config.Hello.JobUID).Begin(&wire.Begin{SessionUID: "some-session", SessionName: "s", Incarnation: 1, MaxCalls: 1, MaxConcurrentCalls: 1}); err != nil {
		t.Fatal(err)
	}
	w.reconcile(call)
	if s := w.get(call).Status; !s.Phase.Terminal() || !ptr.Deref(s.RetrySafe, false) {
		t.Errorf("ten days later the call is %s (%s)", s.Phase, s.Reason)
	}
}

// The session has written that its process is gone; the pod and the Job go, as they do at once with jobTTLSecondsAfterFinished 0,
// before the call is looked at.
func TestWhatTheSessionKnowsOfItsLostProcessItsCallsKnowToo(t *testing.T) {
	w := newWorld(t)
	w.vouchForRequesters()
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	call := w.callIn(s, "c")
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	job, _ := w.sessionJob(s)
	w.disconnect(r.runner)
	w.podStatus(r.pod, terminated("Error", ""))
	w.keep(s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	w.force(r.pod)
	if err := w.client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.keep(s)
	w.reconcile(call)
	if st := w.get(call).Status; st.Reason != v1alpha1.ReasonPodLost || ptr.Deref(st.RetrySafe, true) {
		t.Errorf("after its session ended PodLost the call is %s/%s, retrySafe %v", st.Phase, st.Reason, st.RetrySafe)
	}
}

// Whoever creates calls for a session that has ended doesn't keep its pod and its name.
func TestCallsThatComeAfterTheEndHoldNothing(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", withWorkspace)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	before := w.callIn(s, "before")
	w.settle(s)
	r.hearEnd()
	if now := w.getSession(s); !isHeldByFinalizer(now) {
		t.Fatal("a call that was there before the end has not ended, and the session's name is free")
	}
	w.finishCall(before)
	w.clock.set(time.Now().Add(-time.Hour))
	now := w.getSession(s)
	for i := range now.Status.Conditions {
		now.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	if err := w.client.Status().Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	w.callIn(s, "late")
	w.settle(s)
	if now := w.getSession(s); isHeldByFinalizer(now) || w.hasClaim(s) {
		t.Error("a call that came after the end keeps the session")
	}
}
