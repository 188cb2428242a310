package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/turns"
)

// ExecutionEnvironmentReconciler says on each environment whether it can be used, and how much it is.
type ExecutionEnvironmentReconciler struct {
	Shared
	// Operator is where the NetworkPolicies let runners go.
	Operator OperatorAddress
	// Pools is what is known of warm pools, Hub the runners that wait in them.
	Pools *PoolState
	Hub   *dispatch.Hub
	// Turns are told when another number of calls may run at the same time.
	Turns *turns.Turns
}

// +kubebuilder:rbac:groups=toolcall.dev,resources=executionenvironments/status,verbs=patch

// countDelay gathers the starts and ends of calls into one write of an environment's status, so that counting
// them costs next to nothing a call.
const countDelay = time.Second

// SetupWithManager registers the controller.
func (r *ExecutionEnvironmentReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ExecutionEnvironment{}, notOurs).
		Watches(&v1alpha1.ExecutionEnvironment{}, handler.EnqueueRequestsFromMapFunc(r.siblings), notOurs).
		Watches(&v1alpha1.ExecutionPolicy{}, handler.EnqueueRequestsFromMapFunc(r.usersOf)).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(r.neighbours)).
		Watches(&v1alpha1.ToolCall{}, delayed{}).
		WatchesRawSource(r.Pools.Source()).
		Complete(r)
}

// notOurs leaves out the operator's own writes of a status: to look again at once would undo what countDelay is for.
var notOurs = builder.WithPredicates(predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
))

// siblings are the default environments of a namespace: each one's state depends on the others.
func (r *ExecutionEnvironmentReconciler) siblings(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexDefault: "true"})
}

// neighbours are all environments of a namespace.
func (r *ExecutionEnvironmentReconciler) neighbours(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(o.GetNamespace()))
}

// usersOf are the environments that a policy may matter to.
func (r *ExecutionEnvironmentReconciler) usersOf(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx)
}

func (r *ExecutionEnvironmentReconciler) requests(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.List(ctx, list, opts...); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// delayed queues a call's environment after countDelay; what is queued already isn't queued twice.
type delayed struct{}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (delayed) enqueue(o client.Object, q queue) {
	call, ok := o.(*v1alpha1.ToolCall)
	if ok && call.Status.Environment != nil && call.Status.Environment.Name != "" {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: call.Namespace, Name: call.Status.Environment.Name}}, countDelay)
	}
}

func (d delayed) Create(_ context.Context, e event.CreateEvent, q queue)   { d.enqueue(e.Object, q) }
func (d delayed) Update(_ context.Context, e event.UpdateEvent, q queue)   { d.enqueue(e.ObjectNew, q) }
func (d delayed) Delete(_ context.Context, e event.DeleteEvent, q queue)   { d.enqueue(e.Object, q) }
func (d delayed) Generic(_ context.Context, e event.GenericEvent, q queue) { d.enqueue(e.Object, q) }

// Reconcile counts and judges.
func (r *ExecutionEnvironmentReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	env := &v1alpha1.ExecutionEnvironment{}
	err := r.Get(ctx, req.NamespacedName, env)
	if apierrors.IsNotFound(err) {
		// The calls that wait are judged again, and told.
		r.Turns.Gone(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Turns.Limit(req.NamespacedName, maxConcurrent(env))
	if err := r.ensureNetworkPolicies(ctx, env.Namespace); err != nil {
		return ctrl.Result{}, err
	}
	ready, err := r.judge(ctx, env)
	if err != nil {
		return ctrl.Result{}, err
	}
	active := &v1alpha1.ToolCallList{}
	if err := r.List(ctx, active, client.InNamespace(env.Namespace), client.MatchingFields{indexActive: env.Name}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return ctrl.Result{}, fmt.Errorf("list active calls: %w", err)
	}
	original := env.DeepCopy()
	ready.ObservedGeneration = env.Generation
	meta.SetStatusCondition(&env.Status.Conditions, ready)
	env.Status.ActiveCalls = int32(len(active.Items))
	r.warm(env)
	env.Status.ObservedGeneration = env.Generation
	if equality.Semantic.DeepEqual(original.Status, env.Status) {
		return ctrl.Result{}, nil
	}
	err = r.Status().Patch(ctx, env, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// warm writes how the environment's pool does. While pods are on their way it is looked at again.
func (r *ExecutionEnvironmentReconciler) warm(env *v1alpha1.ExecutionEnvironment) {
	if poolSize(env) == 0 {
		env.Status.Warm = nil
		meta.RemoveStatusCondition(&env.Status.Conditions, v1alpha1.ConditionWarm)
		return
	}
	template, problem := r.Pools.Look(env.UID)
	env.Status.Warm = &v1alpha1.WarmStatus{Ready: int32(r.Hub.Waiting(template)), Desired: poolSize(env), Selector: jobspec.PoolSelector(env)}
	condition := metav1.Condition{Type: v1alpha1.ConditionWarm, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "Pods wait for calls", ObservedGeneration: env.Generation}
	switch {
	case problem != "":
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonPodsFail, clip(problem, v1alpha1.MaxMessageBytes)
	case env.Status.Warm.Ready == 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonFilling, "Pods are being started"
	}
	meta.SetStatusCondition(&env.Status.Conditions, condition)
}

// judge says whether calls can run in the environment.
func (r *ExecutionEnvironmentReconciler) judge(ctx context.Context, env *v1alpha1.ExecutionEnvironment) (metav1.Condition, error) {
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if env.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" {
		defaults := &v1alpha1.ExecutionEnvironmentList{}
		if err := r.List(ctx, defaults, client.InNamespace(env.Namespace), client.MatchingFields{indexDefault: "true"}); err != nil {
			return metav1.Condition{}, fmt.Errorf("list default environments: %w", err)
		}
		if len(defaults.Items) > 1 {
			return no(v1alpha1.ReasonDuplicateDefault, decide.DuplicateDefault(defaults.Items)), nil
		}
	}
	policy, err := policyFor(ctx, r, env.Spec.PolicyName())
	switch {
	case errors.Is(err, errPolicy):
		return no(v1alpha1.ReasonPolicyNotFound, err.Error()), nil
	case err != nil:
		return metav1.Condition{}, err
	}
	if _, err := r.Policies.Compile(policy); err != nil {
		return no(v1alpha1.ReasonInvalidPolicy, "the policy does not compile: "+err.Error()), nil
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "Calls can run"}, nil
}
