package controllers_test

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// terminated is what the kubelet says of a pod that ended, for the given reason and with the given termination message.
func terminated(reason, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase = corev1.PodFailed
		if reason == "Completed" {
			s.Phase = corev1.PodSucceeded
		}
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reason, Message: message},
		}}}
	}
}

// words is the copy of a result that a runner with the token leaves in its pod.
func words(call *v1alpha1.ToolCall, token string) string {
	return string(wire.NewTerminationMessage(token, string(call.UID), result.EncodeTermination(&completed, result.MaxTermination)).Encode())
}

func TestWhatAPodLeavesBehindIsAllThereIs(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	for name, tc := range map[string]struct {
		status  func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus)
		reason  string
		hasExit bool
	}{
		"nothing": {func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus) { return terminated("Error", "") }, v1alpha1.ReasonPodLost, false},
		"oom":     {func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus) { return terminated("OOMKilled", "") }, v1alpha1.ReasonOOMKilled, false},
		"copy": {func(c *v1alpha1.ToolCall, j *batchv1.Job) func(*corev1.PodStatus) {
			return terminated("Completed", words(c, w.identity.Token(w.namespace, j.Name, string(j.UID))))
		}, v1alpha1.ReasonCompleted, true},
		"forged": {func(c *v1alpha1.ToolCall, _ *batchv1.Job) func(*corev1.PodStatus) {
			return terminated("Completed", words(c, "guess"))
		}, v1alpha1.ReasonPodLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			call, pod := w.bound(name)
			w.podStatus(pod, tc.status(call, w.job(call)))
			w.reconcile(call)
			s := w.get(call).Status
			if s.Reason != tc.reason || (s.ExitCode != nil) != tc.hasExit {
				t.Errorf("ended %s, exit code %v: %s", s.Reason, s.ExitCode, s.Message)
			}
			if s.Reason == v1alpha1.ReasonPodLost && (s.RetrySafe == nil || *s.RetrySafe) {
				t.Error("a retry is called safe")
			}
		})
	}
}

func TestAPodThatIsGoneIsLostAndNotRunAgain(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call, pod := w.bound("c")
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("a call whose runner is away for a moment ended: %s", s.Reason)
	}
	if err := w.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(call)
	s := w.get(call).Status
	if s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe || s.ExitCode != nil {
		t.Errorf("ended %s", s.Reason)
	}
}

func TestACallWhosePodIsSilentEndsAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call, _ := w.bound("c", func(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(10)) })
	w.clock.now = w.clock.now.Add(10*time.Second + 5*time.Second + 30*time.Second)
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("ended early: %s", s.Reason)
	}
	w.clock.now = w.clock.now.Add(5 * time.Minute)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodLost {
		t.Errorf("ended %s", s.Reason)
	}
}

func TestTheCallKeepsWhatItStartedWith(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		asDefault(e)
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "before"}}
	})
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	if err := w.client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	w.restart()
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	assigned := r.receive().Assign
	if assigned == nil || len(assigned.Environment.Layers) != 1 || assigned.Environment.Layers[0].Vars[0].Value != "before" {
		t.Errorf("assigned %+v", assigned)
	}
}
