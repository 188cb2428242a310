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
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/trigger"
)

// Reconciler looks after environments. Make it with NewReconciler.
type Reconciler struct {
	Options
	pools *backoffs
}

// Options are what the reconciler needs.
type Options struct {
	Client   client.Client
	Objects  apicache.Reader
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Policies *apicache.Compiled
	Hub      *dispatch.Hub
	Hosts    *host.Registry
	Identity *dispatch.Identity
	Runtime  jobspec.Runtime
	// Queue is told when another number of calls may run at the same time.
	Queue *queue.Queues
	// Calls has a call looked at whose runner has come back without it.
	Calls *trigger.Trigger
	// Operator is where the NetworkPolicies let runners go.
	Operator OperatorAddress
}

// NewReconciler makes one.
func NewReconciler(o Options) *Reconciler { return &Reconciler{Options: o, pools: newBackoffs()} }

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=executionenvironments/status,verbs=patch

// countDelay gathers the starts and ends of calls into one write of an environment's status.
const countDelay = time.Second

// SetupWithManager registers the controller. pools has an environment looked at whose waiting runners changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pools *trigger.Trigger) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ExecutionEnvironment{}, notOurs).
		Watches(&v1alpha1.ExecutionEnvironment{}, handler.EnqueueRequestsFromMapFunc(r.neighbours), notOurs).
		Watches(&v1alpha1.ExecutionPolicy{}, handler.EnqueueRequestsFromMapFunc(r.everyEnvironment)).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(r.neighbours)).
		Watches(&v1alpha1.ToolCall{}, delayed{}).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(poolOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(poolOfPod)).
		WatchesRawSource(pools.Source()).
		Complete(r)
}

// notOurs leaves out the operator's own writes of a status: to look again at once would undo what countDelay is for.
var notOurs = builder.WithPredicates(predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
))

// neighbours are the environments of a namespace: a default one's state and variables matter to all of them.
func (r *Reconciler) neighbours(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(o.GetNamespace()))
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

// delayed queues a call's environment after countDelay; what is queued already isn't queued twice.
type delayed struct{}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

var _ handler.EventHandler = delayed{}

func (delayed) enqueue(o client.Object, q requests) {
	call, ok := o.(*v1alpha1.ToolCall)
	if ok && call.Status.Environment != nil && call.Status.Environment.Name != "" {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: call.Namespace, Name: call.Status.Environment.Name}}, countDelay)
	}
}

// Create, Update, Delete and Generic queue the call's environment.
func (d delayed) Create(_ context.Context, e event.CreateEvent, q requests) { d.enqueue(e.Object, q) }

// Update queues the call's environment.
func (d delayed) Update(_ context.Context, e event.UpdateEvent, q requests) {
	d.enqueue(e.ObjectNew, q)
}

// Delete queues the call's environment.
func (d delayed) Delete(_ context.Context, e event.DeleteEvent, q requests) { d.enqueue(e.Object, q) }

// Generic queues the call's environment.
func (d delayed) Generic(_ context.Context, e event.GenericEvent, q requests) { d.enqueue(e.Object, q) }

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
		r.pools.forget(req.NamespacedName)
		return r.dissolve(ctx, req.NamespacedName, jobs)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Queue.SetLimit(req.NamespacedName, int(ptr.Deref(env.Spec.MaxConcurrentCalls, 0)))
	if err := r.ensureNetworkPolicies(ctx, env.Namespace); err != nil {
		return ctrl.Result{}, err
	}
	p, poolErr := r.reconcilePool(ctx, env, jobs)
	wait, statusErr := r.writeStatus(ctx, env, p)
	if err := errors.Join(poolErr, statusErr); err != nil {
		return ctrl.Result{}, err
	}
	p.wakeIn(wait)
	return ctrl.Result{RequeueAfter: p.wake}, nil
}

// poolJobs are the Jobs that the operator made for the environment's pool and that no call owns.
func (r *Reconciler) poolJobs(ctx context.Context, env types.NamespacedName) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := r.Objects.List(ctx, jobs, client.InNamespace(env.Namespace), client.MatchingFields{apicache.IndexPool: env.Name}); err != nil {
		return nil, fmt.Errorf("list the pool's Jobs: %w", err)
	}
	return slices.DeleteFunc(jobs.Items, func(job batchv1.Job) bool { return !jobspec.IsPoolJob(&job, r.Identity) }), nil
}
