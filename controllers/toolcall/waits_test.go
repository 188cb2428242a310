package toolcall_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestACallWaitsForRoomInAQuota(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.StartTimeoutSeconds = ptr.To(int32(30))
	})
	quota := w.Quota("small", "2", "2")
	call, late := w.Call("c"), w.Call("late")
	if again := w.Reconcile(call).RequeueAfter; again <= 0 || again > time.Second {
		t.Errorf("tries again after %s", again)
	}
	w.ExpectWait(call, v1alpha1.ReasonQuotaExceeded, `"small"`)
	w.Reconcile(late)
	w.Clock.Set(w.Clock.Now().Add(31 * time.Second))
	w.Reconcile(late)
	if s := w.Get(late).Status; s.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(s.Message, "small") || !*s.RetrySafe {
		t.Errorf("after its time: %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	w.Clock.Set(w.Clock.Now().Add(-31 * time.Second))
	w.FillQuota(quota, "0")
	w.Reconcile(call)
	w.FinishOne(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("when there is room: %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

func TestWhatNeverFitsIntoAQuotaFailsAtOnce(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.Quota("none", "0", "0")
	call := w.Call("c")
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(s.Message, "none") {
		t.Errorf("%s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

// The Job controller says so in an Event, and tries again.
func TestACallWaitsForItsPodsRoomInAQuota(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for name, tc := range map[string]struct{ said, reason string }{
		"full":  {"exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1", v1alpha1.ReasonQuotaExceeded},
		"large": {"exceeded quota: small, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1", v1alpha1.ReasonPodRejected},
		"away":  {`Internal error occurred: failed calling webhook "w.example.com": connect: connection refused`, v1alpha1.ReasonPodRejected},
	} {
		call := w.Call(name)
		w.Accept(call)
		job := w.Job(call)
		w.Event(job.UID, "FailedCreate", `Error creating: pods "x" is forbidden: `+tc.said)
		w.Clock.Set(w.Clock.Now().Add(2 * time.Second))
		w.Reconcile(call)
		s := w.Get(call).Status
		if s.Reason != tc.reason || s.Phase.Terminal() != (name == "large") || name == "full" && !strings.Contains(s.Message, `"small"`) {
			t.Errorf("%s: %s/%s: %s", name, s.Phase, s.Reason, s.Message)
		}
		if name == "full" {
			w.FinishOne(call)
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded || s.Reason != v1alpha1.ReasonCompleted {
				t.Errorf("with its pod: %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		}
	}
}

// Only Events say it, and the call says so while it waits and when its time is up.
func TestACallSaysWhyItsPodIsNotSetUp(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.StartTimeoutSeconds = ptr.To(int32(60))
	})
	call := w.Call("c")
	w.Accept(call)
	pod := w.PodOn(w.Job(call), "node-1")
	w.Event(pod.UID, "FailedMount", `secret "none" not found`)
	if again := w.Reconcile(call).RequeueAfter; again <= 0 || again > 5*time.Second {
		t.Errorf("looks again after %s", again)
	}
	w.ExpectWait(call, v1alpha1.ReasonNotStarted, "The pod has not started")
	w.Clock.Set(w.Clock.Now().Add(10 * time.Second))
	w.Reconcile(call)
	const why = `he pod's start is held up: FailedMount: secret "none" not found`
	w.ExpectWait(call, v1alpha1.ReasonNotStarted, why)
	w.PodStatus(pod, func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
	})
	w.Reconcile(call)
	w.ExpectWait(call, v1alpha1.ReasonNotStarted, "The pod has not started")
	w.PodStatus(pod, func(s *corev1.PodStatus) { s.Conditions = nil })
	w.Clock.Set(w.Clock.Now().Add(time.Minute))
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonStartTimeout || !strings.Contains(s.Message, why) {
		t.Errorf("%s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

func TestAQueuedCallSaysWhy(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.MaxConcurrentCalls = ptr.To(int32(1))
	})
	w.Environment("held", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	first, second := w.Call("first"), w.Call("second")
	w.Accept(first)
	w.ExpectWait(first, v1alpha1.ReasonNotStarted, "pod has not started")
	w.Reconcile(second)
	w.ExpectWait(second, v1alpha1.ReasonQueued, "maxConcurrentCalls")
	third := w.Call("third", func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "held"} })
	w.Reconcile(third)
	w.ExpectWait(third, v1alpha1.ReasonEnvironmentSuspended, "suspended")
	w.Start(first)
	if s := w.Get(first).Status; s.Phase != v1alpha1.PhaseRunning || s.Reason != "" || s.Message != "" {
		t.Errorf("what runs doesn't wait: %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

// The runner knows only that it is told to end. The kubelet knows why.
func TestTheKubeletsReasonIsInTheMessage(t *testing.T) {
	const why = `Container call exceeded its local ephemeral storage limit "30Mi".`
	for name, says := range map[string]func(*fixture.World, *corev1.Pod){
		"in the pod's status": func(w *fixture.World, pod *corev1.Pod) {
			w.PodStatus(pod, func(s *corev1.PodStatus) { s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", why })
		},
		"in an Event": func(w *fixture.World, pod *corev1.Pod) { w.Event(pod.UID, "Evicted", why) },
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			call := w.Call("c")
			w.Reconcile(call)
			runner := w.Start(call)
			pod := &corev1.Pod{}
			if err := fixture.Shared.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: w.Get(call).Status.Pod}, pod); err != nil {
				t.Fatal(err)
			}
			told := fixture.Completed
			told.Reason, told.Message, told.Signal, told.ExitCode = result.PodLost, "The pod was told to end (SIGTERM) while the command ran.", "SIGTERM", nil
			told.StartTime, told.CompletionTime = w.Clock.Now().Add(-time.Second), w.Clock.Now()
			runner.Report(w, call.UID, told)
			if again := w.Reconcile(call).RequeueAfter; again <= 0 || w.Get(call).Status.Phase != v1alpha1.PhaseRunning {
				t.Fatalf("ended before the kubelet could say why: %+v", w.Get(call).Status)
			}
			says(w, pod)
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonPodLost || !strings.Contains(s.Message, "Evicted: "+why) {
				t.Errorf("%s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		})
	}
}
