package e2e

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// However a pod is taken away while its command runs, the call ends as lost, with the output so far where the
// runner had time to report it, and is never said to be safe to create again.
func TestPodsThatAreTakenAway(t *testing.T) {
	coldFirst(t, testPodsThatAreTakenAway, wayWarm, wayImage)
}

func testPodsThatAreTakenAway(t *testing.T, w way) {
	sp := w.newSpace(t)
	counting := sp.countPods(t)
	t.Cleanup(func() {
		for job, pods := range counting.perJob() {
			if pods != 1 {
				t.Errorf("%d pods were made for Job %s", pods, job)
			}
		}
	})
	for name, test := range map[string]struct {
		takeAway func(ctx context.Context, pod string) error
		// told says that the runner hears of it in time.
		told bool
	}{
		"deleted": {func(ctx context.Context, pod string) error {
			return sp.clients.CoreV1().Pods(sp.namespace).Delete(ctx, pod, metav1.DeleteOptions{})
		}, true},
		"evicted": {func(ctx context.Context, pod string) error {
			return sp.clients.PolicyV1().Evictions(sp.namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: pod},
			})
		}, true},
		"deleted with its Job": {func(ctx context.Context, pod string) error {
			object, err := sp.clients.CoreV1().Pods(sp.namespace).Get(ctx, pod, metav1.GetOptions{})
			if err != nil {
				return err
			}
			background := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
			return sp.clients.BatchV1().Jobs(sp.namespace).Delete(ctx, object.OwnerReferences[0].Name, background)
		}, true},
		"deleted from the API at once": {func(ctx context.Context, pod string) error {
			now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
			return sp.clients.CoreV1().Pods(sp.namespace).Delete(ctx, pod, now)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			marker := "e2e-taken-" + envName(name)
			call := sp.create(t, shell("echo so far; exec -a "+marker+" sleep 600"))
			running := sp.awaitLine(t, call, "so far")
			must(t, test.takeAway(t.Context(), running.Status.Pod))
			done := sp.awaitFinished(t, call)
			if s := done.Status; s.Phase != v1alpha1.PhaseFailed || s.Reason != v1alpha1.ReasonPodLost || s.RetrySafe == nil || *s.RetrySafe {
				t.Errorf("it ended %s/%s, retrySafe %v: %s", s.Phase, s.Reason, s.RetrySafe, s.Message)
			}
			if test.told && done.Status.Stdout != "so far\n" {
				t.Errorf("the output so far is %q", done.Status.Stdout)
			}
			if code := done.Status.ExitCode; code != nil {
				t.Errorf("it has exit code %d", *code)
			}
			sp.awaitTrue(t, "end of its process", func(context.Context) (bool, error) { return sp.processes(t, marker) == nil, nil })
		})
	}
}

func TestPodThatAnAdmissionPolicyRefuses(t *testing.T) {
	coldFirst(t, testPodThatAnAdmissionPolicyRefuses, wayWarm, wayImage)
}

func testPodThatAnAdmissionPolicyRefuses(t *testing.T, w way) {
	sp := w.newBareSpace(t)
	object := metav1.ObjectMeta{Name: sp.namespace, Labels: map[string]string{labelRun: sp.id}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: object, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "the house has no room"}},
	}}
	must(t, sp.client.Create(t.Context(), policy))
	sp.discard(t, policy)
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: object, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelMetadataName: sp.namespace},
		}},
	}}
	must(t, sp.client.Create(t.Context(), binding))
	sp.discard(t, binding)
	sp.awaitTrue(t, "policy in force", func(ctx context.Context) (bool, error) {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "probe"}}
		probe.Spec.Containers = []corev1.Container{{Name: "probe", Image: toolImage, SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}}
		probe.Spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		_, err := sp.clients.CoreV1().Pods(sp.namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil, nil
	})
	sp.newEnvironment(t, defaultEnv, isDefault)
	call := sp.run(t, shell("echo never"))
	expect(t, call, neverRan(v1alpha1.ReasonPodRejected))
	expectMessage(t, call, "the house has no room")
	sp.awaitNoJob(t, call)
}
