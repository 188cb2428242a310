package toolsession_test

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
	"toolcall.dev/operator/internal/testing/fixture"
)

// A call that runs since before a restart keeps its place in the line of those that wait, and takes a turn twice.
func TestAfterARestartACallThatRunsDoesNotTakeATurnTwice(t *testing.T) {
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", func(s *v1alpha1.ToolSession) { s.Spec.MaxConcurrentCalls = ptr.To[int32](2) })
	first := w.CallIn(s, "first")
	assigned := r.HandOver(w, first)
	w.Elapse(3 * time.Second)
	w.Reconcile(first) // Running is written
	r.Conn.Close()
	w.Restart()
	w.Enters(s, first, 1)
	r.Reconnect(w, wire.Held{UID: string(first.UID), Name: first.Name, State: wire.Running, Decision: assigned.Decision})
	w.Settle(s)
	w.Reconcile(first)
	second := w.CallIn(s, "second")
	w.Enters(s, second, 2)
	for range 5 {
		w.Reconcile(second)
		w.Elapse(2 * time.Second)
	}
	if _, has := w.HeldIn(s, second); !has {
		t.Errorf("two may run at a time, one runs, and the second waits: %+v", w.Get(second).Status.Conditions)
	}
}

// Who may not use a session doesn't decide what stays of its calls.
func TestRefusedCallsOfOthersDoNotPushOutASessionsResults(t *testing.T) {
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	victim := w.CallIn(s, "victim")
	assigned := r.HandOver(w, victim)
	if err := r.Conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(victim.UID), Outcome: fixture.Completed, Decision: assigned.Decision}}); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { held, _ := w.HeldIn(s, victim); return held.State == dispatch.Ended })
	w.Reconcile(victim)
	if p := w.Get(victim).Status.Phase; p != v1alpha1.PhaseSucceeded {
		t.Fatalf("the victim ended %s", p)
	}
	w.Grant(rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}, "toolcalls", nil, "create")
	mallory := w.As("mallory")
	reason := ""
	for i := range 200 {
		c := fixture.LsCall(w.Namespace, fmt.Sprint("m-", i))
		c.Spec.SessionRef = &v1alpha1.SessionReference{Name: s.Name}
		fixture.Eventually(t, func() bool { return mallory.Create(context.Background(), c) == nil })
		fixture.Eventually(t, func() bool {
			return w.Client.Get(context.Background(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{}) == nil
		})
		w.Reconcile(c)
		reason = w.Get(c).Status.Reason
	}
	t.Log("mallory's calls end", reason)
	w.Reconcile(victim)
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(victim), &v1alpha1.ToolCall{}); err != nil {
		t.Errorf("the result of the session's own call, seconds old: %v", err)
	}
}

// A call that was handed over, and whose session a user let go by force, may have run, also for an operator that starts.
func TestACallThatRanIsNotSafeToRetryWhenItsSessionIsGone(t *testing.T) {
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	call := w.CallIn(s, "c")
	r.HandOver(w, call)
	now := w.GetSession(s)
	before := now.DeepCopy()
	now.Finalizers = nil
	if err := w.Client.Patch(context.Background(), now, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.DeleteSession(s)
	fixture.Eventually(t, func() bool {
		return w.Client.Get(context.Background(), client.ObjectKeyFromObject(s), &v1alpha1.ToolSession{}) != nil
	})
	w.Restart()
	for range 3 {
		w.Reconcile(call)
		w.Elapse(2 * time.Second)
	}
	if st := w.Get(call).Status; st.RetrySafe == nil || *st.RetrySafe {
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
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	call := w.CallIn(s, "c")
	asItWas := w.Get(call)
	assigned := r.HandOver(w, call)
	if err := r.Conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(call.UID), Outcome: fixture.Completed, Decision: assigned.Decision}}); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { held, _ := w.HeldIn(s, call); return held.State == dispatch.Ended })
	w.Reconcile(call)
	w.DeleteSession(s)
	w.Settle(s)
	fixture.Eventually(t, func() bool {
		return w.Client.Get(context.Background(), client.ObjectKeyFromObject(s), &v1alpha1.ToolSession{}) != nil
	})
	next, r2 := w.ReadySession("s")
	w.Use = stale{w.Client, asItWas}
	w.Restart()
	r2.Reconnect(w)
	w.Settle(next)
	w.Elapse(2 * time.Second)
	w.Reconcile(call)
	if _, has := w.HeldIn(next, call); has {
		t.Errorf("the call, which is %s, was handed over again, to another session's process", w.Get(call).Status.Phase)
	}
}

// A runner that a lagging leader gave to a session never takes the call that records it.
func TestACallWhoseRunnerServesASessionEnds(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	var r *fixture.Runner
	for _, one := range w.WarmUp(env) {
		r = one
	}
	call := w.Call("c")
	w.Reconcile(call)
	if m := r.Receive(); m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	r.Conn.Close()
	w.Restart()
	r.Connect(w, "")
	if err := w.Hub.Runner(r.Config.Hello.JobUID).Begin(&wire.Begin{
		Owner: wire.Owner{Kind: wire.KindSession, UID: "some-session", Name: "s", Incarnation: 1}, MaxCalls: 1, MaxConcurrentCalls: 1,
	}); err != nil {
		t.Fatal(err)
	}
	w.Reconcile(call)
	if s := w.Get(call).Status; !s.Phase.Terminal() || !ptr.Deref(s.RetrySafe, false) {
		t.Errorf("ten days later the call is %s (%s)", s.Phase, s.Reason)
	}
}

// The session has written that its process is gone; the pod and the Job go, as they do at once with jobTTLSecondsAfterFinished 0,
// before the call is looked at.
func TestWhatTheSessionKnowsOfItsLostProcessItsCallsKnowToo(t *testing.T) {
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	call := w.CallIn(s, "c")
	r.HandOver(w, call)
	job, _ := w.SessionJob(s)
	w.Disconnect(r.Runner)
	w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
	w.Keep(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	w.Force(r.Pod)
	if err := w.Client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.Keep(s)
	w.Reconcile(call)
	if st := w.Get(call).Status; st.Reason != v1alpha1.ReasonPodLost || ptr.Deref(st.RetrySafe, true) {
		t.Errorf("after its session ended PodLost the call is %s/%s, retrySafe %v", st.Phase, st.Reason, st.RetrySafe)
	}
}

// Whoever creates calls for a session that has ended doesn't keep its pod and its name.
func TestCallsThatComeAfterTheEndHoldNothing(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	before := w.CallIn(s, "before")
	// A busy machine may have taken longer to get here than the world's clock shows.
	w.Clock.Set(time.Now().Add(time.Second))
	w.Settle(s)
	r.HearEnd()
	if now := w.GetSession(s); !isHeldByFinalizer(now) {
		t.Fatal("a call that was there before the end has not ended, and the session's name is free")
	}
	w.FinishCall(before)
	w.Clock.Set(time.Now().Add(-time.Hour))
	now := w.GetSession(s)
	for i := range now.Status.Conditions {
		now.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	if err := w.Client.Status().Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	w.CallIn(s, "late")
	w.Settle(s)
	if now := w.GetSession(s); isHeldByFinalizer(now) || w.HasClaim(s) {
		t.Error("a call that came after the end keeps the session")
	}
}
