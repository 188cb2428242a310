package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// unservedWebhook is one that nobody serves, and that is asked before a resource is created.
func (w *world) unservedWebhook(group, resource string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "away.toolcall.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig:  admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			FailurePolicy: ptr.To(admissionv1.Fail), TimeoutSeconds: ptr.To(int32(1)),
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}},
		}},
	}
}

// webhookAway has the API server ask a webhook that nobody serves before it takes a resource in the test's namespace.
// What it returns takes that back.
func (w *world) webhookAway(group, resource string, probe client.Object) (back func()) {
	w.t.Helper()
	ctx := context.Background()
	hook := w.unservedWebhook(group, resource)
	hook.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
	if err := w.client.Create(ctx, hook); err != nil {
		w.t.Fatal(err)
	}
	fails := func() bool {
		o, _ := probe.DeepCopyObject().(client.Object)
		o.SetNamespace(w.namespace)
		o.SetName("probe")
		return apierrors.IsInternalError(w.client.Create(ctx, o, client.DryRunAll, client.DisableReadYourWritesConsistency))
	}
	eventually(w.t, fails)
	gone := false
	back = func() {
		if gone {
			return
		}
		gone = true
		if err := w.client.Delete(ctx, hook); err != nil {
			w.t.Error(err)
		}
		eventually(w.t, func() bool { return !fails() })
	}
	w.t.Cleanup(back)
	return back
}

func anyJob() *batchv1.Job {
	return &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}},
	}}}}
}

// The call says what it waits for, and goes on when the webhook is back.
func TestACallWaitsForAWebhookThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	back := w.webhookAway("batch", "jobs", anyJob())
	call := w.call("c")
	if again := w.reconcile(call).RequeueAfter; again <= 0 || again > time.Second {
		t.Errorf("tries again after %s", again)
	}
	now := w.get(call)
	started := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionStarted)
	if now.Status.Phase != v1alpha1.PhasePending || condition(now, v1alpha1.ConditionAccepted) != metav1.ConditionTrue || started == nil || !strings.Contains(started.Message, "webhook") {
		t.Fatalf("the status is %+v", now.Status)
	}
	w.clock.now = w.clock.now.Add(10 * time.Second)
	w.reconcile(call)
	if again := w.get(call); again.ResourceVersion != now.ResourceVersion {
		t.Errorf("waiting writes again and again: %+v", again.Status)
	}
	back()
	w.reconcile(call)
	w.finishOne(call)
}

func TestACallDoesNotWaitForAWebhookForEver(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { asDefault(e); e.Spec.StartTimeoutSeconds = ptr.To(int32(30)) })
	w.webhookAway("batch", "jobs", anyJob())
	call := w.call("c")
	began := w.clock.now
	for range 100 {
		again := w.reconcile(call).RequeueAfter
		if again == 0 {
			break
		}
		w.clock.now = w.clock.now.Add(again)
	}
	s := w.get(call).Status
	if s.Phase != v1alpha1.PhaseFailed || s.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(s.Message, "webhook") || !*s.RetrySafe {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	// Since when it waits is kept in whole seconds.
	if took := w.clock.now.Sub(began); took > 30*time.Second || took <= 29*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestACallWithoutACredentialForItsPodEndsInTime(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { asDefault(e); e.Spec.StartTimeoutSeconds = ptr.To(int32(30)) })
	back := w.webhookAway("", "secrets", &corev1.Secret{})
	waits, ends := w.call("waits"), w.call("ends")
	for _, call := range []*v1alpha1.ToolCall{waits, ends} {
		w.reconcile(call)
		job := w.job(call)
		w.podStatus(w.pod(job), func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "` + job.Name + `" not found`},
			}}}
		})
		if again := w.reconcile(call).RequeueAfter; again <= 0 || again > time.Second {
			t.Errorf("tries again after %s", again)
		}
	}
	w.clock.now = w.clock.now.Add(31 * time.Second)
	w.reconcile(ends)
	if s := w.get(ends).Status; s.Reason != v1alpha1.ReasonStartTimeout || !strings.Contains(s.Message, "webhook") || !*s.RetrySafe {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	w.clock.now = w.clock.now.Add(-31 * time.Second)
	back()
	w.reconcile(waits)
	job := w.job(waits)
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}); err != nil {
		t.Errorf("when the webhook is back: %v", err)
	}
	if s := w.get(waits).Status; s.Phase != v1alpha1.PhasePending {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}
