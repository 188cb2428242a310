package toolcall_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// The call says what it waits for, and goes on when the webhook is back.
func TestACallWaitsForAWebhookThatIsAway(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	back := w.WebhookAway("batch", "jobs", fixture.AnyJob())
	call := w.Call("c")
	if again := w.Reconcile(call).RequeueAfter; again <= 0 || again > time.Second {
		t.Errorf("tries again after %s", again)
	}
	now := w.Get(call)
	started := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionStarted)
	if now.Status.Phase != v1alpha1.PhasePending || fixture.Condition(now, v1alpha1.ConditionAccepted) != metav1.ConditionTrue || started == nil || !strings.Contains(started.Message, "webhook") {
		t.Fatalf("the status is %+v", now.Status)
	}
	w.Clock.At = w.Clock.At.Add(10 * time.Second)
	w.Reconcile(call)
	if again := w.Get(call); again.ResourceVersion != now.ResourceVersion {
		t.Errorf("waiting writes again and again: %+v", again.Status)
	}
	back()
	w.Reconcile(call)
	w.FinishOne(call)
}

func TestACallDoesNotWaitForAWebhookForEver(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.StartTimeoutSeconds = ptr.To(int32(30))
	})
	w.WebhookAway("batch", "jobs", fixture.AnyJob())
	call := w.Call("c")
	began := w.Clock.At
	for range 100 {
		again := w.Reconcile(call).RequeueAfter
		if again == 0 {
			break
		}
		w.Clock.At = w.Clock.At.Add(again)
	}
	s := w.Get(call).Status
	if s.Phase != v1alpha1.PhaseFailed || s.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(s.Message, "webhook") || !*s.RetrySafe {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	// Since when it waits is kept in whole seconds.
	if took := w.Clock.At.Sub(began); took > 30*time.Second || took <= 29*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestACallWithoutACredentialForItsPodEndsInTime(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.StartTimeoutSeconds = ptr.To(int32(30))
	})
	back := w.WebhookAway("", "secrets", &corev1.Secret{})
	waits, ends := w.Call("waits"), w.Call("ends")
	for _, call := range []*v1alpha1.ToolCall{waits, ends} {
		w.Reconcile(call)
		job := w.Job(call)
		w.PodStatus(w.Pod(job), func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "` + job.Name + `" not found`},
			}}}
		})
		if again := w.Reconcile(call).RequeueAfter; again <= 0 || again > time.Second {
			t.Errorf("tries again after %s", again)
		}
	}
	w.Clock.At = w.Clock.At.Add(31 * time.Second)
	w.Reconcile(ends)
	if s := w.Get(ends).Status; s.Reason != v1alpha1.ReasonStartTimeout || !strings.Contains(s.Message, "webhook") || !*s.RetrySafe {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	w.Clock.At = w.Clock.At.Add(-31 * time.Second)
	back()
	w.Reconcile(waits)
	job := w.Job(waits)
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}); err != nil {
		t.Errorf("when the webhook is back: %v", err)
	}
	if s := w.Get(waits).Status; s.Phase != v1alpha1.PhasePending {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}
