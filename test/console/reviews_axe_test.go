package console

import (
	"context"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestReviewsAreAccessible(t *testing.T) {
	source, err := os.ReadFile(axe)
	must(t, err)
	must(t, os.MkdirAll(pictures, 0o755))
	f := newFixture(t)
	token, username := f.approver()
	f.approved(f.waits("push-1", "git push origin v1"), username)
	call := f.create("push-2", "git push origin v2\n"+strings.Repeat("echo a long line that goes on and on and on 1234567890123456789012345678901234567890\n", 60), requestedBy("agent"))
	f.report(call, awaiting(call, "git push origin v2"))
	budget := &v1alpha1.ToolBudget{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nightly"}, Spec: v1alpha1.ToolBudgetSpec{MaxConcurrentCalls: ptr.To(int32(4))}}
	must(t, f.admin.Create(t.Context(), budget))
	budget.Status.Used = &v1alpha1.BudgetUse{ConcurrentCalls: 3}
	must(t, f.admin.Status().Update(t.Context(), budget))
	p := f.open("/#/approvals/" + f.namespace)
	p.do("Emulation.setScrollbarsHidden", params{"hidden": true}, nil)
	p.signIn(token, f.namespace)
	p.awaitLine("push-2", "agent")
	p.check(string(source), state{name: "approvals"})
	p.show("#/approvals/" + f.namespace + "/push-2")
	p.awaitText("#difference del", "v1")
	p.check(string(source), state{name: "approval-of"})
	p.openDialog("Approve")
	p.eval("document.querySelector('.confirm-text').scrollTo(0, 1e9)", nil)
	p.await(confirmWorks)
	p.check(string(source), state{name: "confirm"})
	p.click("Cancel")
	p.click("Forget the token")
	p.show("#/use/" + f.namespace)
	p.signIn(f.policyViewer(), f.namespace)
	p.awaitText("#budgets", "3 of 4")
	p.check(string(source), state{name: "use"})
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}, Spec: v1alpha1.ExecutionPolicySpec{
		Rules:    []v1alpha1.PolicyRule{{Name: "no-push", Expression: strings.Repeat("1 == 1 && ", 300) + "true", Effect: v1alpha1.RuleDeny, Message: "ask first"}},
		Examples: []v1alpha1.PolicyExample{{Name: "push", Call: runtime.RawExtension{Raw: []byte(`{"shell":{"command":"git push"}}`)}, Expect: v1alpha1.ExpectDeny}},
	}}
	must(t, f.admin.Create(t.Context(), policy))
	t.Cleanup(func() { _ = f.admin.Delete(context.Background(), policy) })
	p.show("#/policies/" + f.namespace)
	p.awaitLine(f.namespace, "not judged")
	p.check(string(source), state{name: "policies"})
	p.show("#/policies/" + f.namespace + "/" + f.namespace)
	p.awaitText("#examples", "git push")
	p.check(string(source), state{name: "policy"})
}
