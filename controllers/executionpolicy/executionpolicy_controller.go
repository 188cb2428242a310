// Package executionpolicy says on each policy whether it can be used.
package executionpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
)

// Reconciler compiles policies and writes their status.
type Reconciler struct {
	Client   client.Client
	Objects  apicache.Reader
	Policies *apicache.Compiled
}

// +kubebuilder:rbac:groups=toolcall.dev,resources=executionpolicies/status,verbs=patch

// SetupWithManager registers the controller. A policy's state depends on the other policies, through the
// default: a change of one has all of them looked at.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ExecutionPolicy{}).
		Watches(&v1alpha1.ExecutionPolicy{}, handler.EnqueueRequestsFromMapFunc(r.defaults)).
		Complete(r)
}

func (r *Reconciler) defaults(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.ExecutionPolicyList{}
	if err := r.Objects.List(ctx, list, client.MatchingFields{apicache.IndexDefault: "true"}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile compiles the policy and writes the outcome.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	policy := &v1alpha1.ExecutionPolicy{}
	err := r.Objects.Get(ctx, req.NamespacedName, policy)
	if apierrors.IsNotFound(err) {
		r.Policies.Forget(req.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	defaults := &v1alpha1.ExecutionPolicyList{}
	if err := r.Objects.List(ctx, defaults, client.MatchingFields{apicache.IndexDefault: "true"}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list default policies: %w", err)
	}
	compiled, err := r.Policies.Compile(policy)
	original := policy.DeepCopy()
	conditions := []metav1.Condition{policyReady(policy, err, len(defaults.Items))}
	if err == nil {
		conditions = append(conditions, policyWeak(compiled.Warnings()))
	}
	for _, c := range conditions {
		c.ObservedGeneration = policy.Generation
		meta.SetStatusCondition(&policy.Status.Conditions, c)
	}
	policy.Status.ObservedGeneration = policy.Generation
	if equality.Semantic.DeepEqual(original.Status, policy.Status) {
		return ctrl.Result{}, nil
	}
	err = r.Client.Status().Patch(ctx, policy, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// policyWeak says what of the policy is usable but weaker than it looks.
func policyWeak(warnings []string) metav1.Condition {
	if len(warnings) == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionWeak, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoWarnings, Message: "Nothing in the policy is weaker than it looks"}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionWeak, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWarnings,
		Message: bounds.Text(strings.Join(warnings, "; "), v1alpha1.MaxMessageBytes),
	}
}

// policyReady is the policy's condition, from whether it compiles and how many defaults there are.
func policyReady(policy *v1alpha1.ExecutionPolicy, compile error, defaults int) metav1.Condition {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "The policy can be used"}
	isDefault := policy.Annotations[v1alpha1.AnnotationDefaultPolicy] == "true"
	switch {
	case compile != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, bounds.Text(compile.Error(), v1alpha1.MaxMessageBytes)
		if _, ok := errors.AsType[*decide.ExamplesFailed](compile); ok {
			ready.Reason = v1alpha1.ReasonExampleFailed
		}
	case isDefault && defaults > 1:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonDuplicateDefault
		ready.Message = fmt.Sprintf("%d policies are annotated with %s: \"true\"; keep it on one of them", defaults, v1alpha1.AnnotationDefaultPolicy)
	}
	return ready
}
