package executionpolicy_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/executionpolicy"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Suite.Run(m)) }

// judged is the condition Ready of a policy after a pass.
func judged(w *fixture.World, policy *v1alpha1.ExecutionPolicy) *metav1.Condition {
	w.T.Helper()
	r := &executionpolicy.Reconciler{Client: w.Client, Objects: apicache.Reader{Reader: w.Client}, Policies: &apicache.Compiled{}}
	key := client.ObjectKeyFromObject(policy)
	if _, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key}); err != nil {
		w.T.Fatal(err)
	}
	if err := w.Client.Get(context.Background(), key, policy); err != nil {
		w.T.Fatal(err)
	}
	return meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
}

// A policy whose example fails isn't ready, no call runs under it, and both end with the next generation.
func TestNothingRunsWhileAnExampleFails(t *testing.T) {
	w := fixture.NewWorld(t)
	ctx := context.Background()
	policy := &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "examples-" + w.Namespace},
		Spec: v1alpha1.ExecutionPolicySpec{
			Access: v1alpha1.AccessOpen, Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)},
			Rules: []v1alpha1.PolicyRule{{Name: "push", Expression: `action.command.contains("push")`, Effect: v1alpha1.RuleDeny, Message: "fetch only"}},
			Examples: []v1alpha1.PolicyExample{{
				Name: "force", Call: runtime.RawExtension{Raw: []byte(`{"shell":{"command":"git pu\"\"sh --force"}}`)}, Expect: v1alpha1.ExpectDeny,
			}},
		},
	}
	if err := w.Client.Create(ctx, policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Client.Delete(ctx, policy) })
	ready := judged(w, policy)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonExampleFailed || !strings.Contains(ready.Message, "spec.examples[force] expects Deny, and comes out as Allow") {
		t.Errorf("the policy says %+v", ready)
	}
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef.Name = policy.Name })
	run := func(name, command string) *v1alpha1.ToolCall {
		call := w.Call(name, func(c *v1alpha1.ToolCall) {
			c.Spec.Shell.Command = command
			c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"}
		})
		w.Reconcile(call)
		return w.Get(call)
	}
	if call := run("before", "ls"); call.Status.Reason != v1alpha1.ReasonInvalidPolicy || !strings.Contains(call.Status.Message, "spec.examples[force]") || w.HasJob(call) {
		t.Errorf("a call: %s: %s", call.Status.Reason, call.Status.Message)
	}
	policy.Spec.Rules[0].Expression = `action.commands.exists(c, "push" in c.args)`
	if err := w.Client.Update(ctx, policy); err != nil {
		t.Fatal(err)
	}
	if ready := judged(w, policy); ready.Status != metav1.ConditionTrue {
		t.Errorf("corrected, the policy says %+v", ready)
	}
	if call := run("after", "ls"); call.Status.Phase == v1alpha1.PhaseFailed || !w.HasJob(call) {
		t.Errorf("a call under the corrected policy: %s: %s", call.Status.Reason, call.Status.Message)
	}
	if call := run("denied", "git push"); call.Status.Phase != v1alpha1.PhaseDenied || call.Status.Reason != v1alpha1.ReasonDeniedByRule || !strings.Contains(call.Status.Message, "fetch only") {
		t.Errorf("a call that the rule is for: %s: %s", call.Status.Reason, call.Status.Message)
	}
}
