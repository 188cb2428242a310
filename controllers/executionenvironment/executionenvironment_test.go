package executionenvironment_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestToolPodsAcceptNobodyAndTheDeniedReachTheOperatorOnly(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env")
	w.Judge(env)
	ingress := w.NetworkPolicy("toolcall-no-ingress")
	if len(ingress.Spec.Ingress) != 0 || !slices.Equal(ingress.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Errorf("somebody may connect to tool pods: %+v", ingress.Spec)
	}
	if got := ingress.Spec.PodSelector.MatchLabels[v1alpha1.LabelManagedBy]; got != v1alpha1.ManagedBy {
		t.Errorf("it selects %v", ingress.Spec.PodSelector)
	}
	denied := w.NetworkPolicy("toolcall-no-network")
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
	w := fixture.NewWorld(t)
	first := w.Environment("first")
	w.Judge(first)
	before := w.NetworkPolicy("toolcall-no-network")
	w.Judge(first)
	if now := w.NetworkPolicy("toolcall-no-network"); now.ResourceVersion != before.ResourceVersion {
		t.Error("it was written without need")
	}
	opened := before.DeepCopy()
	opened.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	if err := w.Client.Update(context.Background(), opened); err != nil {
		t.Fatal(err)
	}
	second := w.Environment("second")
	w.Judge(second)
	now := w.NetworkPolicy("toolcall-no-network")
	if len(now.Spec.Egress[0].To) != 1 {
		t.Error("a policy that was opened stays open")
	}
	if len(now.OwnerReferences) != 2 {
		t.Errorf("it belongs to %v", now.OwnerReferences)
	}
}

// A quota keeps the namespace from having NetworkPolicies: calls run all the same, held by their runner, and the environment says so.
func TestCallsRunWhereNetworkPoliciesAreRefused(t *testing.T) {
	w := fixture.NewWorld(t)
	w.NetworkPolicyQuota("0")
	env := w.Environment("env", fixture.AsDefault)
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(w.Judge(env).Status.Conditions, v1alpha1.ConditionReady)
	}
	if c := ready(); c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "nothing but their runner keeps them from the network") || !strings.Contains(c.Message, "exceeded quota: policies") {
		t.Errorf("the environment says %+v", c)
	}
	call := w.Call("c")
	w.Reconcile(call)
	w.FinishOne(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("the call ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	w.NetworkPolicyQuota("9")
	if c := ready(); c.Status != metav1.ConditionTrue || c.Message != "Calls can run" {
		t.Errorf("with a quota that allows them: %+v", c)
	}
	w.NetworkPolicy("toolcall-no-network")
}

// Somebody's own NetworkPolicy has the name of one of the operator's: the environment says so, and the other one is made.
func TestAForeignNetworkPolicyIsNamed(t *testing.T) {
	w := fixture.NewWorld(t)
	foreign := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "toolcall-no-ingress"}}
	w.Create(foreign)
	env := w.Environment("env", fixture.AsDefault)
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(w.Judge(env).Status.Conditions, v1alpha1.ConditionReady)
	}
	if c := ready(); c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "toolcall-no-ingress: it is there already") {
		t.Errorf("the environment says %+v", c)
	}
	w.NetworkPolicy("toolcall-no-network")
	if err := w.Client.Delete(context.Background(), foreign, client.DisableReadYourWritesConsistency); err != nil {
		t.Fatal(err)
	}
	if c := ready(); c.Status != metav1.ConditionTrue || c.Message != "Calls can run" {
		t.Errorf("once it is gone: %+v", c)
	}
	w.NetworkPolicy("toolcall-no-ingress")
}

func TestAnEnvironmentSaysWhetherCallsCanRun(t *testing.T) {
	w := fixture.NewWorld(t)
	ready := func(env *v1alpha1.ExecutionEnvironment) *metav1.Condition {
		return meta.FindStatusCondition(w.Judge(env).Status.Conditions, v1alpha1.ConditionReady)
	}
	good := w.Environment("good", fixture.AsDefault)
	if c := ready(good); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonReady {
		t.Errorf("a good one: %+v", c)
	}
	bad := w.Environment("bad", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "missing"} })
	if c := ready(bad); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonPolicyNotFound {
		t.Errorf("one without its policy: %+v", c)
	}
	second, third := w.Environment("second", fixture.AsDefault), w.Environment("third")
	for _, env := range []*v1alpha1.ExecutionEnvironment{good, second, third} {
		if c := ready(env); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonDuplicateDefault {
			t.Errorf("%s, beside two defaults or one of them: %+v", env.Name, c)
		}
	}
	before := w.Judge(good).ResourceVersion
	if w.Judge(good).ResourceVersion != before {
		t.Error("a status was written without need")
	}
}

func TestAnEnvironmentUnderTwoDefaultPoliciesNamesTheDuplicate(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef = nil })
	for _, name := range []string{"default-a-", "default-b-"} {
		policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{
			Name: name + w.Namespace, Annotations: map[string]string{v1alpha1.AnnotationDefaultPolicy: "true"},
		}}
		w.Create(policy)
		t.Cleanup(func() { _ = w.Client.Delete(context.Background(), policy) })
	}
	c := meta.FindStatusCondition(w.Judge(env).Status.Conditions, v1alpha1.ConditionReady)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonDuplicateDefault || !strings.Contains(c.Message, "2 ExecutionPolicies") {
		t.Errorf("Ready is %s (%s): %s", c.Status, c.Reason, c.Message)
	}
}

func TestAnEnvironmentCountsItsCalls(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault)
	for _, name := range []string{"a", "b"} {
		w.Accept(w.Call(name))
	}
	denied := w.Call("denied", func(c *v1alpha1.ToolCall) { c.Spec.Shell.Command = " " })
	w.Reconcile(denied)
	fixture.Eventually(t, func() bool { return w.Judge(env).Status.ActiveCalls == 2 })
}

// Nobody can ask the API whether an image can be pulled, and the operator can't whether a Secret is there: the last pod says it.
func TestAnEnvironmentWhoseLastPodDidNotStartIsNotReady(t *testing.T) {
	for name, tc := range map[string]struct{ waits, message, reason string }{
		"image":  {"ErrImagePull", "no such host", v1alpha1.ReasonImagePullFailed},
		"secret": {"CreateContainerConfigError", `secret "db" not found`, v1alpha1.ReasonInvalidEnvironment},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			env := w.Environment("env", fixture.AsDefault)
			expect := func(status metav1.ConditionStatus, reason, says string) {
				t.Helper()
				ready := meta.FindStatusCondition(w.Judge(env).Status.Conditions, v1alpha1.ConditionReady)
				if ready.Status != status || ready.Reason != reason || !strings.Contains(ready.Message, says) {
					t.Errorf("Ready is %s/%s: %s", ready.Status, ready.Reason, ready.Message)
				}
			}
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			fail := func(call *v1alpha1.ToolCall) {
				w.Reconcile(call)
				w.PodStatus(w.Pod(w.Job(call)), func(s *corev1.PodStatus) {
					s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
						Waiting: &corev1.ContainerStateWaiting{Reason: tc.waits, Message: tc.message},
					}}}
				})
				w.Reconcile(call)
			}
			fail(w.Call("fails"))
			expect(metav1.ConditionFalse, tc.reason, tc.message)
			w.Restart()
			expect(metav1.ConditionFalse, tc.reason, tc.message)
			w.RunOn("node", fixture.HoldsAll)
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			fail(w.Call("again"))
			expect(metav1.ConditionFalse, tc.reason, tc.message)
			w.ReadySession("works")
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			failSession := func(name, waits, message string) {
				session := w.Session(name)
				w.Settle(session)
				job, _ := w.SessionJob(session)
				w.PodStatus(w.Pod(job), func(s *corev1.PodStatus) {
					s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
						Waiting: &corev1.ContainerStateWaiting{Reason: waits, Message: message},
					}}}
				})
				w.Elapse(3 * time.Minute)
				w.Settle(session)
				w.Expect(session, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
			}
			// A problem that may pass doesn't make the environment unready.
			failSession("late", "ErrImagePull", "toomanyrequests: you have reached your pull rate limit")
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			failSession("fails", tc.waits, tc.message)
			expect(metav1.ConditionFalse, tc.reason, tc.message)
			now := w.Judge(env)
			now.Spec.Image = "example.com/tools:2"
			if err := w.Client.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			expect(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
		})
	}
}
