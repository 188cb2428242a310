package controllers_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// judge runs one pass over an environment, and reads what it wrote.
func (w *world) judge(env *v1alpha1.ExecutionEnvironment) *v1alpha1.ExecutionEnvironment {
	w.t.Helper()
	w.judgeGone(env)
	now := &v1alpha1.ExecutionEnvironment{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(env), now); err != nil {
		w.t.Fatal(err)
	}
	return now
}

// judgeGone runs one pass over an environment that may be gone.
func (w *world) judgeGone(env *v1alpha1.ExecutionEnvironment) {
	w.t.Helper()
	// Counts wait for a second.
	w.clock.set(w.clock.Now().Add(time.Second))
	if _, err := w.pools.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(env)}); err != nil {
		w.t.Fatalf("reconcile the environment: %v", err)
	}
}

func (w *world) networkPolicy(name string) *networkingv1.NetworkPolicy {
	w.t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: name}, policy); err != nil {
		w.t.Fatal(err)
	}
	return policy
}

func TestToolPodsAcceptNobodyAndTheDeniedReachTheOperatorOnly(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env")
	w.judge(env)
	ingress := w.networkPolicy("toolcall-no-ingress")
	if len(ingress.Spec.Ingress) != 0 || !slices.Equal(ingress.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Errorf("somebody may connect to tool pods: %+v", ingress.Spec)
	}
	if got := ingress.Spec.PodSelector.MatchLabels[v1alpha1.LabelManagedBy]; got != v1alpha1.ManagedBy {
		t.Errorf("it selects %v", ingress.Spec.PodSelector)
	}
	denied := w.networkPolicy("toolcall-no-network")
	if got := denied.Spec.PodSelector.MatchLabels[jobspec.LabelNetwork]; got != jobspec.NetworkDenied {
		t.Errorf("it selects %v", denied.Spec.PodSelector)
	}
	if len(denied.Spec.Egress) != 1 || len(denied.Spec.Egress[0].To) != 1 || len(denied.Spec.Egress[0].Ports) != 1 {
		t.Fatalf("more than one way out: %+v", denied.Spec.Egress)
	}
	to, port := denied.Spec.Egress[0].To[0], denied.Spec.Egress[0].Ports[0]
	if to.IPBlock != nil || to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "toolcall-system" || len(to.PodSelector.MatchLabels) == 0 || port.Port.IntVal != 9443 {
		t.Errorf("the way out leads to %+v, port %v", to, port)
	}
}

func TestNetworkPoliciesAreMendedAndLeftAloneOtherwise(t *testing.T) {
	w := newWorld(t)
	first := w.environment("first")
	w.judge(first)
	before := w.networkPolicy("toolcall-no-network")
	w.judge(first)
	if now := w.networkPolicy("toolcall-no-network"); now.ResourceVersion != before.ResourceVersion {
		t.Error("it was written without need")
	}
	opened := before.DeepCopy()
	opened.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	if err := w.client.Update(context.Background(), opened); err != nil {
		t.Fatal(err)
	}
	second := w.environment("second")
	w.judge(second)
	now := w.networkPolicy("toolcall-no-network")
	if len(now.Spec.Egress[0].To) != 1 {
		t.Error("a policy that was opened stays open")
	}
	if len(now.OwnerReferences) != 2 {
		t.Errorf("it belongs to %v", now.OwnerReferences)
	}
}

// networkPolicyQuota lets the namespace have so many NetworkPolicies, and waits until the API server knows. No controller counts them here.
func (w *world) networkPolicyQuota(limit string) {
	w.t.Helper()
	ctx := context.Background()
	const policies = "count/networkpolicies.networking.k8s.io"
	hard := corev1.ResourceList{policies: resource.MustParse(limit)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "policies"}}
	if _, err := controllerutil.CreateOrUpdate(ctx, w.client, quota, func() error { quota.Spec.Hard = hard; return nil }); err != nil {
		w.t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{policies: resource.MustParse("0")}}
	if err := w.client.Status().Update(ctx, quota, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, func() bool {
		probe := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"}}
		err := w.client.Create(ctx, probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		return (err == nil) == (limit != "0")
	})
}

// A quota keeps the namespace from having NetworkPolicies: calls run all the same, held by their runner, and the environment says so.
func TestCallsRunWhereNetworkPoliciesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.networkPolicyQuota("0")
	env := w.environment("env", asDefault)
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(w.judge(env).Status.Conditions, v1alpha1.ConditionReady)
	}
	if c := ready(); c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "nothing but their runner keeps them from the network") || !strings.Contains(c.Message, "exceeded quota: policies") {
		t.Errorf("the environment says %+v", c)
	}
	call := w.call("c")
	w.reconcile(call)
	w.finishOne(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("the call ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	w.networkPolicyQuota("9")
	if c := ready(); c.Status != metav1.ConditionTrue || c.Message != "Calls can run" {
		t.Errorf("with a quota that allows them: %+v", c)
	}
	w.networkPolicy("toolcall-no-network")
}

func TestAnEnvironmentSaysWhetherCallsCanRun(t *testing.T) {
	w := newWorld(t)
	ready := func(env *v1alpha1.ExecutionEnvironment) *metav1.Condition {
		return meta.FindStatusCondition(w.judge(env).Status.Conditions, v1alpha1.ConditionReady)
	}
	good := w.environment("good", asDefault)
	if c := ready(good); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonReady {
		t.Errorf("a good one: %+v", c)
	}
	bad := w.environment("bad", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "missing"} })
	if c := ready(bad); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonPolicyNotFound {
		t.Errorf("one without its policy: %+v", c)
	}
	second := w.environment("second", asDefault)
	for _, env := range []*v1alpha1.ExecutionEnvironment{good, second} {
		if c := ready(env); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonDuplicateDefault {
			t.Errorf("%s, one of two defaults: %+v", env.Name, c)
		}
	}
	before := w.judge(good).ResourceVersion
	if w.judge(good).ResourceVersion != before {
		t.Error("a status was written without need")
	}
}

func TestAnEnvironmentUnderTwoDefaultPoliciesNamesTheDuplicate(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef = nil })
	for _, name := range []string{"default-a-", "default-b-"} {
		policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{
			Name: name + w.namespace, Annotations: map[string]string{v1alpha1.AnnotationDefaultPolicy: "true"},
		}}
		w.create(policy)
		t.Cleanup(func() { _ = w.client.Delete(context.Background(), policy) })
	}
	c := meta.FindStatusCondition(w.judge(env).Status.Conditions, v1alpha1.ConditionReady)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonDuplicateDefault || !strings.Contains(c.Message, "2 ExecutionPolicies") {
		t.Errorf("Ready is %s (%s): %s", c.Status, c.Reason, c.Message)
	}
}

func TestAnEnvironmentCountsItsCalls(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault)
	for _, name := range []string{"a", "b"} {
		w.accept(w.call(name))
	}
	denied := w.call("denied", func(c *v1alpha1.ToolCall) { c.Spec.Shell.Command = " " })
	w.reconcile(denied)
	eventually(t, func() bool { return w.judge(env).Status.ActiveCalls == 2 })
}

// Nobody can ask the API whether an image can be pulled, and the operator can't whether a Secret is there: the last pod says it.
func TestAnEnvironmentWhoseLastPodDidNotStartIsNotReady(t *testing.T) {
	for name, tc := range map[string]struct{ waits, message, reason string }{
		"image":  {"ErrImagePull", "no such host", v1alpha1.ReasonImagePullFailed},
		"secret": {"CreateContainerConfigError", `secret "db" not found`, v1alpha1.ReasonInvalidEnvironment},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			env := w.environment("env", asDefault)
			expect := func(status metav1.ConditionStatus, reason, says string) {
				t.Helper()
				ready := meta.FindStatusCondition(w.judge(env).Status.Conditions, v1alpha1.ConditionReady)
				if ready.Status != status || ready.Reason != reason || !strings.Contains(ready.Message, says) {
					t.Errorf("Ready is %s/%s: %s", ready.Status, ready.Reason, ready.Message)
				}
			}
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			fail := func(call *v1alpha1.ToolCall) {
				w.reconcile(call)
				w.podStatus(w.pod(w.job(call)), func(s *corev1.PodStatus) {
					s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
						Waiting: &corev1.ContainerStateWaiting{Reason: tc.waits, Message: tc.message},
					}}}
				})
				w.reconcile(call)
			}
			fail(w.call("fails"))
			expect(metav1.ConditionFalse, tc.reason, tc.message)
			w.restart()
			expect(metav1.ConditionFalse, tc.reason, tc.message)
			w.runOn("node", holdsAll)
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			fail(w.call("again"))
			expect(metav1.ConditionFalse, tc.reason, tc.message)
			now := w.judge(env)
			now.Spec.Image = "example.com/tools:2"
			if err := w.client.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
		})
	}
}
