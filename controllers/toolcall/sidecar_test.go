package toolcall_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// container is the kubelet's word about one container of a pod.
func container(name string, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: state}
}

var (
	runs   = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	exited = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
	oom    = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	stuck  = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}
)

func TestASidecarThatEndsOrWaitsDoesNotEndARunningCall(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for name, state := range map[string]corev1.ContainerState{"exited": exited, "oom": oom, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			call, pod := w.Bound(name)
			w.PodStatus(pod, func(s *corev1.PodStatus) {
				s.Phase = corev1.PodRunning
				s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", state), container("call", runs)}
			})
			w.Reconcile(call)
			w.StillRunning(call, "with its sidecar "+name)
		})
	}
}

func TestASidecarThatGoesOnDoesNotHoldUpTheEndOfACall(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for name, tc := range map[string]struct {
		call   corev1.ContainerState
		reason string
	}{"exited": {exited, v1alpha1.ReasonPodLost}, "oom": {oom, v1alpha1.ReasonOOMKilled}} {
		t.Run(name, func(t *testing.T) {
			call, pod := w.Bound(name)
			w.PodStatus(pod, func(s *corev1.PodStatus) {
				s.Phase = corev1.PodRunning
				s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", runs), container("call", tc.call)}
			})
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Reason != tc.reason || *s.RetrySafe {
				t.Errorf("the call is %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		})
	}
}

func TestASidecarThatEndsOrWaitsDoesNotKeepACallFromItsStart(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for name, state := range map[string]corev1.ContainerState{"exited": exited, "oom": oom, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			call := w.Call(name)
			w.Accept(call)
			job := w.Job(call)
			pod := w.Pod(job)
			w.PodStatus(pod, func(s *corev1.PodStatus) {
				s.Phase = corev1.PodRunning
				s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", state), container("call", runs)}
			})
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhasePending {
				t.Fatalf("the call is %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			r := w.Runner(job, pod)
			w.Reconcile(call)
			if m := r.Receive(); m.Assign == nil {
				t.Errorf("got %+v; want the call", m)
			}
		})
	}
}

func TestASidecarOfAWaitingPodIsNoFailureOfThePool(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	w.PodStatus(w.PodNamed(r.Config.Hello.Pod), func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", exited), container("call", runs)}
	})
	w.Fill(env)
	if jobs := w.Waiting(env); len(jobs) != 1 || jobs[0].Name != r.Config.Hello.Job || w.Problem(env) != "" {
		t.Errorf("%d pods wait, and the environment says %q", len(jobs), w.Problem(env))
	}
}
