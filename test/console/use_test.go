package console

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/denials"
)

// policyViewer is a viewer of the namespace, and of all policies, as with the ClusterRole toolcall-policy-viewer.
func (f *fixture) policyViewer() (token string) {
	f.t.Helper()
	token = f.user("auditor", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls", "toolbudgets", "executionenvironments"}, Verbs: []string{"get", "list", "watch"},
	})
	named := metav1.ObjectMeta{Name: f.namespace}
	role := &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"executionpolicies"}, Verbs: []string{"get", "list", "watch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: f.namespace},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "auditor"}},
	}
	must(f.t, f.admin.Create(f.t.Context(), role))
	must(f.t, f.admin.Create(f.t.Context(), binding))
	return token
}

func TestUseIsSummedUp(t *testing.T) {
	f := newFixture(t)
	for name, username := range map[string]string{"a": "jane", "b": "jane", "c": "joe"} {
		call := f.create(name, "true", requestedBy(username))
		status := succeeded()
		status.Usage = &v1alpha1.CallUsage{CPUMilliseconds: ptr.To(int64(250)), MaxRSSBytes: ptr.To(int64(5 << 20))}
		f.report(call, status)
	}
	budget := &v1alpha1.ToolBudget{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nightly"}, Spec: v1alpha1.ToolBudgetSpec{
		Subjects: []v1alpha1.BudgetSubject{{Kind: v1alpha1.BudgetUser, Name: "jane\u202e"}}, MaxConcurrentCalls: ptr.To(int32(4)), CPUSecondsPerHour: ptr.To(int64(600)),
	}}
	must(t, f.admin.Create(t.Context(), budget))
	p := f.open("/#/use/" + f.namespace)
	p.signIn(f.policyViewer(), f.namespace)
	p.await(`[...document.querySelectorAll('#requesters tbody tr')].map((r) => [...r.cells].map((c) => c.textContent).join('|')).join('\n') ===
		'jane|2|2|0|0|0|0|0|3.00 s|1.50 s|500 ms|5.0 MiB\njoe|1|1|0|0|0|0|0|1.50 s|1.50 s|250 ms|5.0 MiB'`)
	p.awaitText("#environments", f.namespace+"/tools")
	p.awaitText("#state", "3 calls that are there are summed up")
	p.awaitText("#budgets", "user jane<U+202E>")
	p.awaitText("#budgets", "limit 600 s")
	budget.Status.Used = &v1alpha1.BudgetUse{ConcurrentCalls: 3, CPUSeconds: 30}
	must(t, f.admin.Status().Update(t.Context(), budget))
	p.awaitText("#budgets", "3 of 4")
	p.awaitText("#budgets", "30 s of 600 s")
	p.await("[...document.querySelectorAll('meter')].map((m) => m.value / m.max).join() === '0.75,0.05'")
}

func TestPoliciesShowWhatTheyRefused(t *testing.T) {
	f := newFixture(t)
	name := f.namespace // Policies are in no namespace.
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ExecutionPolicySpec{
		Rules: []v1alpha1.PolicyRule{
			{Name: "no-push", Expression: `action.binary == "git"`, Effect: v1alpha1.RuleDeny, Message: "<b>ask first"},
			{Name: "unused", Expression: "false", Effect: v1alpha1.RuleDeny},
		},
		Approvals: []v1alpha1.ApprovalRequirement{{Name: "deploys", Match: v1alpha1.ApprovalMatch{Tools: []string{"kubectl"}}}},
		Examples:  []v1alpha1.PolicyExample{{Name: "push", Call: runtime.RawExtension{Raw: []byte(`{"shell":{"command":"git push"}}`)}, Expect: v1alpha1.ExpectDeny}},
	}}
	must(t, f.admin.Create(t.Context(), policy))
	t.Cleanup(func() { must(t, f.admin.Delete(context.Background(), policy)) })
	policy.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonExampleFailed, LastTransitionTime: metav1.Now(),
		Message: "spec.examples[push] expects Deny, and comes out as Allow",
	}}
	must(t, f.admin.Status().Update(t.Context(), policy))
	must(t, f.admin.Create(t.Context(), &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "tools"}, Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "a", PolicyRef: &v1alpha1.PolicyReference{Name: name}},
	}))
	denied := func(call, reason, message string, causes ...string) {
		status := v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: reason, Message: message, Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}}
		if causes != nil {
			status.Approval = &v1alpha1.ApprovalStatus{Digest: "a", Summary: "{}", Needed: 1, RequestedAt: metav1.NowMicro(), ExpiresAt: metav1.NowMicro(), Causes: causes}
		}
		f.report(f.create(call, "true"), status)
	}
	denied("a", v1alpha1.ReasonDeniedByRule, `The policy's rule "no-push" denies the call: <b>ask first`)
	denied("b", v1alpha1.ReasonDeniedByRule, `The policy's rule "no-push" denies the call: <b>ask first`)
	denied("c", v1alpha1.ReasonApprovalDenied, "no", "deploys")
	denied("d", v1alpha1.ReasonBinaryNotAllowed, "no")
	p := f.open("/#/policies/" + f.namespace)
	p.signIn(f.policyViewer(), f.namespace)
	p.awaitLine(name, "not ready", "4")
	p.eval("[...document.querySelectorAll('td a')].find((a) => a.textContent === "+quote(name)+").click()", nil)
	p.await(`[...document.querySelectorAll('#rules tbody tr')].map((r) => r.cells[0].textContent + r.cells[4].textContent).join() === 'no-push2,unused0'`)
	p.awaitText("#rules", "<b>ask first")
	p.await(`document.querySelector('#requirements tbody tr').cells[5].textContent === '1'`)
	p.awaitText("#refusals", v1alpha1.ReasonBinaryNotAllowed+denials.Rules()[v1alpha1.ReasonBinaryNotAllowed].Field+"1")
	p.awaitText("#examples", "spec.examples[push] expects Deny, and comes out as Allow")
	p.awaitText("#examples", `"command": "git push"`)
	p.awaitText("#state", "It isn't ready")

	// Without the right to read policies, the page says which is missing.
	p.click("Forget the token")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#state", "toolcall-policy-viewer")
}
