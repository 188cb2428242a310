// Package executionenvironment looks after environments: their warm pools, the NetworkPolicies of their namespaces, and
// their status, which nobody else writes.
//
// A pass reads the environment, its pool's Jobs and its calls, brings the pool to its size, and writes the status at
// most once. Counts are gathered for a second, so that they cost next to nothing a call.
package executionenvironment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/trigger"
)

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=executionenvironments/status,verbs=patch

// countDelay gathers the starts and ends of calls into one write of an environment's status, and the changes of what
// many environments depend on into one pass over each.
const countDelay = time.Second

// concurrentPasses is how many environments have a pass at the same time. One environment never has two.
const concurrentPasses = 8

// SetupWithManager registers the controller. pools has an environment looked at whose waiting runners changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pools *trigger.Trigger) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ExecutionEnvironment{}, notOurs).
		Watches(&v1alpha1.ExecutionEnvironment{}, gathered(r.neighbours), notOurs).
		Watches(&v1alpha1.ExecutionPolicy{}, gathered(r.everyEnvironment), notOurs).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(r.oneEnvironment)).
		Watches(&v1alpha1.ToolCall{}, gathered(environmentOfCall)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(poolOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(poolOfPod)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentPasses, NewQueue: pools.Queue}).
		Complete(r)
}

// notOurs leaves out the operator's own writes of a status: to look again at once would undo what countDelay is for.
var notOurs = builder.WithPredicates(predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
))

// neighbours are the environments that depend on a default one's state and variables: all of its namespace. Nothing
// depends on another environment.
func (r *Reconciler) neighbours(ctx context.Context, env client.Object) []reconcile.Request {
	if !isDefault(env) {
		return nil
	}
	return r.requests(ctx, client.InNamespace(env.GetNamespace()))
}

// isDefault says that an environment is marked as its namespace's default.
func isDefault(env client.Object) bool {
	return env.GetAnnotations()[v1alpha1.AnnotationDefaultEnvironment] == "true"
}

// oneEnvironment is any of a NetworkPolicy's namespace: each one's pass mends them. It is always the same one, so that
// many changes have it looked at once.
func (r *Reconciler) oneEnvironment(ctx context.Context, policy client.Object) []reconcile.Request {
	all := r.requests(ctx, client.InNamespace(policy.GetNamespace()))
	if len(all) == 0 {
		return nil
	}
	return []reconcile.Request{slices.MinFunc(all, func(a, b reconcile.Request) int { return strings.Compare(a.Name, b.Name) })}
}

// everyEnvironment may be meant by a policy.
func (r *Reconciler) everyEnvironment(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx)
}

func (r *Reconciler) requests(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.Objects.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// poolOfJob maps a Job that belongs to a pool to its environment.
func poolOfJob(_ context.Context, o client.Object) []reconcile.Request {
	job, ok := o.(*batchv1.Job)
	if !ok || jobspec.PoolOf(job) == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: job.Namespace, Name: jobspec.PoolOf(job)}}}
}

// poolOfPod maps a pod of a pool to its environment, by the annotation that its template carries.
func poolOfPod(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetAnnotations()[jobspec.AnnotationPool]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// environmentOfCall is the one whose active calls a call counts among.
func environmentOfCall(_ context.Context, o client.Object) []reconcile.Request {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || call.Status.Environment == nil || call.Status.Environment.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: call.Namespace, Name: call.Status.Environment.Name}}}
}

// gathered queues the environments that an object matters to after countDelay, before and after its change. What is
// queued already isn't queued twice.
func gathered(environments handler.MapFunc) handler.EventHandler {
	enqueue := func(ctx context.Context, q trigger.Requests, objects ...client.Object) {
		for _, o := range objects {
			for _, request := range environments(ctx, o) {
				q.AddAfter(request, countDelay)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q trigger.Requests) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Requests) {
			enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Requests) { enqueue(ctx, q, e.Object) },
	}
}

// Reconcile brings the environment's pool to its size, and says how the environment does.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	jobs, err := r.poolJobs(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	env := &v1alpha1.ExecutionEnvironment{}
	err = r.Objects.Get(ctx, req.NamespacedName, env)
	if apierrors.IsNotFound(err) {
		// The calls that wait are decided about again, and told.
		r.Queue.RemoveEnvironment(req.NamespacedName)
		r.backoffs.Delete(req.NamespacedName)
		r.Nodes.Forget(req.NamespacedName)
		metrics.ForgetEnvironment(req.NamespacedName)
		// The namespace's other environments may have no pass soon.
		if err := r.ensureNetworkPolicies(ctx, req.Namespace); err != nil && refusedPolicies(err) == "" {
			return ctrl.Result{}, err
		}
		return r.dissolve(ctx, req.NamespacedName, jobs)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	metrics.AddEnvironment(req.NamespacedName)
	r.Queue.SetLimit(req.NamespacedName, int(ptr.Deref(env.Spec.MaxConcurrentCalls, 0)))
	err = r.ensureNetworkPolicies(ctx, env.Namespace)
	unheld := refusedPolicies(err)
	if err != nil && unheld == "" {
		return ctrl.Result{}, err
	}
	in, err := r.readInputs(ctx, env)
	if err != nil {
		return ctrl.Result{}, err
	}
	if env.Status.ObservedGeneration != env.Generation {
		// Its pods may run elsewhere now.
		r.Nodes.Forget(req.NamespacedName)
	}
	p := r.newPool(env)
	if p.unheld = unheld; unheld != "" {
		p.wakeIn(lastBackOff)
	}
	poolErr := r.reconcilePool(ctx, p, in, jobs)
	wait, statusErr := r.writeStatus(ctx, p, in)
	if err := errors.Join(poolErr, statusErr); err != nil {
		return ctrl.Result{}, err
	}
	p.wakeIn(wait)
	return p.result(), nil
}

// inputs are the other objects that an environment's state and pool depend on.
type inputs struct {
	// Context has the namespace's default environments.
	decide.Context
	policies decide.Policies
}

func (r *Reconciler) readInputs(ctx context.Context, env *v1alpha1.ExecutionEnvironment) (*inputs, error) {
	defaults, err := r.Objects.DefaultEnvironments(ctx, env.Namespace, false)
	if err != nil {
		return nil, err
	}
	policies, err := r.Objects.Policies(ctx, env)
	return &inputs{Context: decide.Context{Defaults: defaults}, policies: policies}, err
}

// poolJobs are the Jobs that the operator made for the environment's pool and that no call owns.
func (r *Reconciler) poolJobs(ctx context.Context, env types.NamespacedName) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := r.Objects.List(ctx, jobs, client.InNamespace(env.Namespace), client.MatchingFields{apicache.IndexPool: env.Name}); err != nil {
		return nil, fmt.Errorf("list the pool's Jobs: %w", err)
	}
	return slices.DeleteFunc(jobs.Items, func(job batchv1.Job) bool { return !jobspec.IsPoolJob(&job, r.Identity) }), nil
}
