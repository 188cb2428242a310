package toolcall_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

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
