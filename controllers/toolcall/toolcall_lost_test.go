package toolcall_test

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
	"toolcall.dev/operator/internal/testing/fixture"
)

// words is the copy of a result that a runner with the token leaves in its pod.
func words(call *v1alpha1.ToolCall, token string) string {
	return string(wire.NewTerminationMessage(token, string(call.UID), result.EncodeTermination(&fixture.Completed, result.MaxTermination)).Encode())
}

func TestWhatAPodLeavesBehindIsAllThereIs(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for name, tc := range map[string]struct {
		status  func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus)
		reason  string
		hasExit bool
	}{
		"nothing": {func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus) { return fixture.Terminated("Error", "") }, v1alpha1.ReasonPodLost, false},
		"oom": {func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus) {
			return fixture.Terminated("OOMKilled", "")
		}, v1alpha1.ReasonOOMKilled, false},
		"copy": {func(c *v1alpha1.ToolCall, j *batchv1.Job) func(*corev1.PodStatus) {
			return fixture.Terminated("Completed", words(c, w.Identity.Token(w.Namespace, j.Name, string(j.UID))))
		}, v1alpha1.ReasonCompleted, true},
		"forged": {func(c *v1alpha1.ToolCall, _ *batchv1.Job) func(*corev1.PodStatus) {
			return fixture.Terminated("Completed", words(c, "guess"))
		}, v1alpha1.ReasonPodLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			call, pod := w.Bound(name)
			w.PodStatus(pod, tc.status(call, w.Job(call)))
			w.Reconcile(call)
			s := w.Get(call).Status
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
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call, pod := w.Bound("c")
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("a call whose runner is away for a moment ended: %s", s.Reason)
	}
	if err := w.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe || s.ExitCode != nil {
		t.Errorf("ended %s", s.Reason)
	}
}

func TestACallWhosePodIsSilentEndsAtItsDeadline(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call, _ := w.Bound("c", func(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(10)) })
	w.Clock.At = w.Clock.At.Add(10*time.Second + 5*time.Second + 30*time.Second)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("ended early: %s", s.Reason)
	}
	w.Clock.At = w.Clock.At.Add(5 * time.Minute)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonPodLost {
		t.Errorf("ended %s", s.Reason)
	}
}

func TestTheCallKeepsWhatItStartedWith(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "before"}}
	})
	call := w.Call("c")
	w.Reconcile(call)
	job := w.Job(call)
	if err := w.Client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	w.Restart()
	r := w.Runner(job, w.Pod(job))
	w.Reconcile(call)
	assigned := r.Receive().Assign
	if assigned == nil || len(assigned.Environment.Layers) != 1 || assigned.Environment.Layers[0].Vars[0].Value != "before" {
		t.Errorf("assigned %+v", assigned)
	}
}
