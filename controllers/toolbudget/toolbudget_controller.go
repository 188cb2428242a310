// Package toolbudget makes budgets known to what counts calls and sessions (queue.Ledger), and says on each how much of it is in use.
//
// Who counts towards which budget follows from the budgets and the requesters alone. What is in use is kept in memory and rebuilt from
// the API: nothing depends on the status.
package toolbudget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/trigger"
)

// Reconciler keeps budgets.
type Reconciler struct {
	Client  client.Client
	Objects apicache.Reader
	Budgets *queue.Ledger
	// Seed makes the budgets of a namespace known, and what is in use of them.
	Seed func(ctx context.Context, namespace string) error
}

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolbudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolbudgets/status,verbs=patch

// workers is how many budgets are looked at at the same time, workersOfNamespace how many of one namespace: what is in use of its
// budgets may take long to read.
const (
	workers            = 8
	workersOfNamespace = 2
)

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	budgets := trigger.New("toolbudget")
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ToolBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: budgets.Queue}).
		Complete(fair.OfNamespaces(r, workersOfNamespace, func(budget types.NamespacedName) { budgets.Enqueue(budget, 0) }))
}

// pause is how often a budget's status follows what is in use.
const pause = 15 * time.Second

// Reconcile makes the budget known, and says how much of it is in use.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	budget := &v1alpha1.ToolBudget{}
	err := r.Objects.Get(ctx, req.NamespacedName, budget)
	if apierrors.IsNotFound(err) {
		r.Budgets.RemoveBudget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Seed(ctx, req.Namespace); errors.Is(err, queue.ErrSeeding) {
		return ctrl.Result{RequeueAfter: queue.SeedingPause}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	r.Budgets.SetBudget(req.Namespace, ruleOf(budget))
	used, ok := r.Budgets.Used(req.NamespacedName)
	if !ok {
		return ctrl.Result{}, fmt.Errorf("the budget %s was deleted while it was looked at", req)
	}
	original := budget.DeepCopy()
	budget.Status.ObservedGeneration, budget.Status.Used = budget.Generation, useOf(used)
	meta.SetStatusCondition(&budget.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: "The operator holds calls and sessions to the budget", ObservedGeneration: budget.Generation,
	})
	if !equality.Semantic.DeepEqual(original.Status, budget.Status) {
		err = r.Client.Status().Patch(ctx, budget, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{}))
	}
	return ctrl.Result{RequeueAfter: pause}, client.IgnoreNotFound(err)
}

func useOf(used queue.Amounts) *v1alpha1.BudgetUse {
	return &v1alpha1.BudgetUse{
		ConcurrentCalls: int32(used[queue.Calls]), Sessions: int32(used[queue.Sessions]),
		CPUSeconds: used[queue.CPUMilliseconds] / 1000, PendingBytes: used[queue.PendingBytes],
	}
}

// Rules are the budgets of a namespace, as the cache has them.
func Rules(ctx context.Context, objects client.Reader, namespace string) ([]queue.Rule, error) {
	budgets := &v1alpha1.ToolBudgetList{}
	if err := objects.List(ctx, budgets, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list budgets: %w", err)
	}
	rules := make([]queue.Rule, 0, len(budgets.Items))
	for i := range budgets.Items {
		rules = append(rules, ruleOf(&budgets.Items[i]))
	}
	return rules, nil
}

func ruleOf(budget *v1alpha1.ToolBudget) queue.Rule {
	spec, limits := &budget.Spec, queue.Unlimited()
	if spec.MaxConcurrentCalls != nil {
		limits[queue.Calls] = int64(*spec.MaxConcurrentCalls)
	}
	if spec.MaxSessions != nil {
		limits[queue.Sessions] = int64(*spec.MaxSessions)
	}
	if spec.MaxPendingBytes != nil {
		limits[queue.PendingBytes] = *spec.MaxPendingBytes
	}
	if spec.CPUSecondsPerHour != nil {
		limits[queue.CPUMilliseconds] = 1000 * *spec.CPUSecondsPerHour
	}
	subjects := slices.Clone(spec.Subjects)
	version := fmt.Sprint(budget.UID, "/", budget.Generation)
	return queue.Rule{Name: budget.Name, Version: version, Limits: limits, Covers: func(user string, groups []string) bool { return covers(subjects, user, groups) }}
}

// covers says whether a user is one of the subjects; without any, everybody is.
func covers(subjects []v1alpha1.BudgetSubject, user string, groups []string) bool {
	return len(subjects) == 0 || slices.ContainsFunc(subjects, func(s v1alpha1.BudgetSubject) bool {
		switch s.Kind {
		case v1alpha1.BudgetUser:
			return s.Name == user
		case v1alpha1.BudgetGroup:
			return slices.Contains(groups, s.Name)
		case v1alpha1.BudgetServiceAccount:
			return user == "system:serviceaccount:"+s.Namespace+":"+s.Name
		default:
			return false
		}
	})
}
