package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// An admission webhook that is configured and that nobody serves stands in the way of the question whether an agent
// may use its tool. Nobody says no: the call waits for an answer as long as it may wait for its start, and is refused
// then.
func TestAQuestionAboutTheRequesterThatNobodyAnswers(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	const patience = 5 * time.Second
	sp.newEnvironment(t, "hasty", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.StartTimeoutSeconds = ptr.To(int32(patience / time.Second))
	})
	a := sp.newAgent(t, "agent")
	sp.allow(t, "agent", a.subject, use("echo"))
	webhook := sp.refuseReviews(t, a.username)

	hasty := sp.createAs(t, a, in("hasty", structured("echo", "never")))
	calm := sp.createAs(t, a, structured("echo", "at last"))
	for _, call := range []*v1alpha1.ToolCall{hasty, calm} {
		undecided := sp.awaitCall(t, call, "undecided", func(c *v1alpha1.ToolCall) bool {
			return condition(c, v1alpha1.ConditionAccepted) == metav1.ConditionUnknown
		})
		if undecided.Status.Phase != v1alpha1.PhasePending {
			t.Errorf("a call that nobody can decide about is %s", undecided.Status.Phase)
		}
	}
	refused := sp.awaitFinished(t, hasty)
	expect(t, refused, denied(v1alpha1.ReasonGuardError))
	expectMessage(t, refused, a.username, `"echo"`, "could not be checked")
	sp.awaitNoJob(t, refused)
	if took := time.Duration(*refused.Status.Timings.FinishedMilliseconds) * time.Millisecond; took < patience-time.Second {
		t.Errorf("it was refused after %s, and may wait %s for its start", took, patience)
	}
	must(t, sp.client.Delete(t.Context(), webhook))
	expect(t, sp.awaitFinished(t, calm), succeeded("at last\n"))
}

// refuseReviews has the API server answer no question about a user any more, and leaves all others alone.
func (sp *space) refuseReviews(t *testing.T, username string) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	config := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: sp.namespace, Labels: map[string]string{labelRun: sp.id}},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "gone.toolcall.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig:  admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			FailurePolicy: ptr.To(admissionv1.Fail), TimeoutSeconds: ptr.To(int32(1)),
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "user", Expression: fmt.Sprintf("has(object.spec.user) && object.spec.user == %q", username),
			}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{
					APIGroups: []string{authorizationv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"subjectaccessreviews"},
				},
			}},
		}},
	}
	must(t, sp.client.Create(t.Context(), config))
	sp.discard(t, config)
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: username, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "use", Resource: "tools"},
	}}
	sp.awaitTrue(t, "unanswered question", func(ctx context.Context) (bool, error) {
		_, err := sp.clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err != nil, nil
	})
	return config
}
