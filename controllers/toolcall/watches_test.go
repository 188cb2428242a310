package toolcall_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestTheEndOfASuspensionHasTheHeldCallsLookedAt(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	w.Manage()
	call := w.Call("c")
	fixture.Eventually(t, func() bool { return fixture.WhyNotStarted(w.Get(call)) == v1alpha1.ReasonEnvironmentSuspended })
	w.Suspend(env, false)
	fixture.Eventually(t, func() bool { return w.HasJob(call) })
}

// failing is a cache that doesn't show one call when that is looked at.
type failing struct {
	client.Client
	call string
}

func (f failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*v1alpha1.ToolCall); is && key.Name == f.call {
		return errors.New("down")
	}
	return f.Client.Get(ctx, key, o, opts...)
}

// No pass over a call that an operator before this one let in has to come before those over others.
func TestAManagerCountsTheCallsThatWereLetInBeforeIt(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(1)) })
	first := w.Call("first")
	w.LetIn(first)
	second := w.Call("second")
	w.Restart()
	w.Manage(func(c client.Client) client.Client { return failing{c, first.Name} })
	fixture.Eventually(t, func() bool { return w.HasJob(second) || w.Get(second).Status.Reason == v1alpha1.ReasonQueued })
	if w.HasJob(second) {
		t.Error("two calls run where one may")
	}
}

func TestTheEndOfAPodHasItsCallLookedAt(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call, pod := w.Bound("c")
	w.Manage()
	w.PodStatus(pod, fixture.Terminated("Error", ""))
	fixture.Eventually(t, func() bool { return w.Get(call).Status.Phase.Terminal() })
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// The Job of the waiting pod isn't the call's own yet, and nothing else tells of the pod's end.
func TestACallThatTookAWaitingPodEndsWhenThatPodDiesAtOnce(t *testing.T) {
	w := fixture.NewWorld(t)
	env, r, call := w.GivenAPod()
	name := w.Get(call).Status.Job
	w.Disconnect(r)
	w.PodStatus(w.PodNamed(w.Get(call).Status.Pod), func(s *corev1.PodStatus) { fixture.Terminated("Error", "")(s) })
	w.Fill(env)
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe || s.ExitCode != nil {
		t.Errorf("ended %s, safe to retry: %v: %s", s.Reason, *s.RetrySafe, s.Message)
	}
	fixture.Eventually(t, func() bool { w.Fill(env); return !w.HasNamedJob(name) && len(w.Waiting(env)) == 1 })
	if problem := w.Problem(env); problem != "" {
		t.Errorf("the environment says %q: a pod that had a call is no failure of the pool", problem)
	}
}
