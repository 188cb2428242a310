package controllers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
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
	w := newWorld(t)
	w.environment("env", asDefault)
	for name, state := range map[string]corev1.ContainerState{"exited": exited, "oom": oom, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			call, pod := w.bound(name)
			w.podStatus(pod, func(s *corev1.PodStatus) {
				s.Phase = corev1.PodRunning
				s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", state), container("call", runs)}
			})
			w.reconcile(call)
			w.stillRunning(call, "with its sidecar "+name)
		})
	}
}

func TestASidecarThatGoesOnDoesNotHoldUpTheEndOfACall(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	for name, tc := range map[string]struct {
		call   corev1.ContainerState
		reason string
	}{"exited": {exited, v1alpha1.ReasonPodLost}, "oom": {oom, v1alpha1.ReasonOOMKilled}} {
		t.Run(name, func(t *testing.T) {
			call, pod := w.bound(name)
			w.podStatus(pod, func(s *corev1.PodStatus) {
				s.Phase = corev1.PodRunning
				s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", runs), container("call", tc.call)}
			})
			w.reconcile(call)
			if s := w.get(call).Status; s.Reason != tc.reason || *s.RetrySafe {
				t.Errorf("the call is %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		})
	}
}

func TestASidecarThatEndsOrWaitsDoesNotKeepACallFromItsStart(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	for name, state := range map[string]corev1.ContainerState{"exited": exited, "oom": oom, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			call := w.call(name)
			w.accept(call)
			job := w.job(call)
			pod := w.pod(job)
			w.podStatus(pod, func(s *corev1.PodStatus) {
				s.Phase = corev1.PodRunning
				s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", state), container("call", runs)}
			})
			w.reconcile(call)
			if s := w.get(call).Status; s.Phase != v1alpha1.PhasePending {
				t.Fatalf("the call is %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			r := w.runner(job, pod)
			w.reconcile(call)
			if m := r.receive(); m.Assign == nil {
				t.Errorf("got %+v; want the call", m)
			}
		})
	}
}

func TestASidecarOfAWaitingPodIsNoFailureOfThePool(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	w.podStatus(w.podNamed(r.config.Hello.Pod), func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{container("proxy", exited), container("call", runs)}
	})
	w.fill(env)
	if jobs := w.waiting(env); len(jobs) != 1 || jobs[0].Name != r.config.Hello.Job || w.problem(env) != "" {
		t.Errorf("%d pods wait, and the environment says %q", len(jobs), w.problem(env))
	}
}
