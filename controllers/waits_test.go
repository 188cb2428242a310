package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

// quota bounds how many Jobs the namespace may have. No controller counts them here: used is what counts.
func (w *world) quota(name, limit, used string) *corev1.ResourceQuota {
	w.t.Helper()
	const jobs = "count/jobs.batch"
	hard := corev1.ResourceList{jobs: resource.MustParse(limit)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if err := w.client.Create(context.Background(), quota, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
	w.fillQuota(quota, used)
	return quota
}

func (w *world) fillQuota(quota *corev1.ResourceQuota, used string) {
	w.t.Helper()
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{"count/jobs.batch": resource.MustParse(used)}}
	if err := w.client.Status().Update(context.Background(), quota, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
	// The API server knows of it a moment later.
	eventually(w.t, func() bool {
		probe := anyJob()
		probe.Namespace, probe.Name = w.namespace, "probe"
		err := w.client.Create(context.Background(), probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		limit := quota.Spec.Hard["count/jobs.batch"]
		return (err == nil) == (limit.Cmp(resource.MustParse(used)) > 0)
	})
}

// expectWait says that a call has not ended, and for what it waits.
func (w *world) expectWait(call *v1alpha1.ToolCall, reason string, texts ...string) {
	w.t.Helper()
	s := w.get(call).Status
	if s.Phase != v1alpha1.PhasePending || s.Reason != reason {
		w.t.Fatalf("%s is %s/%s: %s", call.Name, s.Phase, s.Reason, s.Message)
	}
	for _, text := range texts {
		if !strings.Contains(s.Message, text) {
			w.t.Errorf("%s waits: %s", call.Name, s.Message)
		}
	}
}

func TestACallWaitsForRoomInAQuota(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { asDefault(e); e.Spec.StartTimeoutSeconds = ptr.To(int32(30)) })
	quota := w.quota("small", "2", "2")
	call, late := w.call("c"), w.call("late")
	if again := w.reconcile(call).RequeueAfter; again <= 0 || again > time.Second {
		t.Errorf("tries again after %s", again)
	}
	w.expectWait(call, v1alpha1.ReasonQuotaExceeded, `"small"`)
	w.reconcile(late)
	w.clock.set(w.clock.Now().Add(31 * time.Second))
	w.reconcile(late)
	if s := w.get(late).Status; s.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(s.Message, "small") || !*s.RetrySafe {
		t.Errorf("after its time: %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	w.clock.set(w.clock.Now().Add(-31 * time.Second))
	w.fillQuota(quota, "0")
	w.reconcile(call)
	w.finishOne(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("when there is room: %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

func TestWhatNeverFitsIntoAQuotaFailsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	w.quota("none", "0", "0")
	call := w.call("c")
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(s.Message, "none") {
		t.Errorf("%s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

// The Job controller says so in an Event, and tries again.
func TestACallWaitsForItsPodsRoomInAQuota(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	for name, tc := range map[string]struct{ said, reason string }{
		"full":  {"exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1", v1alpha1.ReasonQuotaExceeded},
		"large": {"exceeded quota: small, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1", v1alpha1.ReasonPodRejected},
		"away":  {`Internal error occurred: failed calling webhook "w.example.com": connect: connection refused`, v1alpha1.ReasonPodRejected},
	} {
		call := w.call(name)
		w.accept(call)
		job := w.job(call)
		w.event(job.UID, "FailedCreate", `Error creating: pods "x" is forbidden: `+tc.said)
		w.clock.set(w.clock.Now().Add(2 * time.Second))
		w.reconcile(call)
		s := w.get(call).Status
		if s.Reason != tc.reason || s.Phase.Terminal() != (name == "large") || name == "full" && !strings.Contains(s.Message, `"small"`) {
			t.Errorf("%s: %s/%s: %s", name, s.Phase, s.Reason, s.Message)
		}
		if name == "full" {
			w.finishOne(call)
			if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded || s.Reason != v1alpha1.ReasonCompleted {
				t.Errorf("with its pod: %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		}
	}
}

func TestAQueuedCallSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { asDefault(e); e.Spec.MaxConcurrentCalls = ptr.To(int32(1)) })
	w.environment("held", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	first, second := w.call("first"), w.call("second")
	w.accept(first)
	w.expectWait(first, v1alpha1.ReasonNotStarted, "pod has not started")
	w.reconcile(second)
	w.expectWait(second, v1alpha1.ReasonQueued, "maxConcurrentCalls")
	third := w.call("third", func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "held"} })
	w.reconcile(third)
	w.expectWait(third, v1alpha1.ReasonEnvironmentSuspended, "suspended")
	w.start(first)
	if s := w.get(first).Status; s.Phase != v1alpha1.PhaseRunning || s.Reason != "" || s.Message != "" {
		t.Errorf("what runs doesn't wait: %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

// event is what somebody says about an object.
func (w *world) event(about types.UID, reason, message string) {
	w.t.Helper()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "event-"}, Reason: reason, Message: message,
		LastTimestamp: metav1.NewTime(w.clock.Now()), InvolvedObject: corev1.ObjectReference{Namespace: w.namespace, UID: about},
	}
	if err := w.client.Create(context.Background(), event, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
}

// The runner knows only that it is told to end. The kubelet knows why.
func TestTheKubeletsReasonIsInTheMessage(t *testing.T) {
	const why = `Container call exceeded its local ephemeral storage limit "30Mi".`
	for name, says := range map[string]func(*world, *corev1.Pod){
		"in the pod's status": func(w *world, pod *corev1.Pod) {
			w.podStatus(pod, func(s *corev1.PodStatus) { s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", why })
		},
		"in an Event": func(w *world, pod *corev1.Pod) { w.event(pod.UID, "Evicted", why) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			call := w.call("c")
			w.reconcile(call)
			runner := w.start(call)
			pod := &corev1.Pod{}
			if err := shared.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: w.get(call).Status.Pod}, pod); err != nil {
				t.Fatal(err)
			}
			told := completed
			told.Reason, told.Message, told.Signal, told.ExitCode = result.PodLost, "The pod was told to end (SIGTERM) while the command ran.", "SIGTERM", nil
			told.StartTime, told.CompletionTime = w.clock.Now().Add(-time.Second), w.clock.Now()
			runner.report(w, call.UID, told)
			if again := w.reconcile(call).RequeueAfter; again <= 0 || w.get(call).Status.Phase != v1alpha1.PhaseRunning {
				t.Fatalf("ended before the kubelet could say why: %+v", w.get(call).Status)
			}
			says(w, pod)
			w.reconcile(call)
			if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodLost || !strings.Contains(s.Message, "Evicted: "+why) {
				t.Errorf("%s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		})
	}
}
