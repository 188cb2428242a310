// Package toolcall brings calls to their end.
//
// A pass over a call observes it (observe.go), works out its stage and runs one handler (stage.go has the table), and
// carries out the effects that the handler returns (effects.go, apply.go). Handlers never write to the API; they may
// take places in queues and claims in memory, which taking again doesn't change. The status is written at most once in a
// pass, and what follows from it comes after the write, so that the operator may be killed at any point.
//
// The files use each other in one direction: toolcall_controller.go, apply.go, stage.go, the handlers (end.go, run.go,
// start.go, place.go), what they decide by (queued.go, retention.go, deadlines.go), what they make (outcome.go,
// programs.go, status.go, effects.go), observe.go, and reconciler.go with what a pass needs.
package toolcall

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/trigger"
)

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcalls,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcalls/status,verbs=patch
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=executionenvironments;skills,verbs=get;list;watch
// +kubebuilder:rbac:groups=toolcall.dev,resources=executionpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,roleName=toolcall-operator-namespaced,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",roleName=toolcall-operator-namespaced,resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=toolcall-operator-namespaced,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",roleName=toolcall-operator-namespaced,resources=events,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,roleName=toolcall-operator-namespaced,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings;validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, calls *trigger.Trigger) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ToolCall{}).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.callsOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.callsOfPod)).
		Watches(&v1alpha1.ExecutionEnvironment{}, r.onEnvironments()).
		WatchesRawSource(calls.Source()).
		// The queue of a replica that only waits for the lease would keep the name of every call that there ever was.
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrent, EnableWarmup: ptr.To(false)}).
		Complete(r)
}

// Reconcile takes one look at a call and moves it on as far as that look allows.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if o == nil {
		r.Hub.Dismiss(req.Namespace, req.Name, "", deletedCall)
		r.releaseClaims(req.NamespacedName, "")
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	// A call that had this name before is gone.
	r.Hub.Dismiss(req.Namespace, req.Name, string(o.call.UID), deletedCall)
	r.releaseClaims(req.NamespacedName, string(o.call.UID))
	e, err := r.runStage(ctx, o)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.apply(ctx, o, e)
}

const deletedCall = "the ToolCall was deleted"

// releaseClaims ends the claims of calls of a name which are gone, all but the one with a UID.
func (r *Reconciler) releaseClaims(call types.NamespacedName, except string) {
	for _, runner := range r.Hosts.ReleaseOthers(call, except) {
		runner.Refuse(deletedCall)
	}
}

// callsOfPod maps a pod to the call that it was made for or given to. A pod that carries another call's annotation can
// at most have that call looked at once more.
func (r *Reconciler) callsOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	requests := r.ifInFlight(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetAnnotations()[jobspec.AnnotationCall]})
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "Job" {
		requests = append(requests, r.recordedIn(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name})...)
	}
	return requests
}

// callsOfJob maps a Job to the call that owns it, or that records it.
func (r *Reconciler) callsOfJob(ctx context.Context, o client.Object) []reconcile.Request {
	requests := r.recordedIn(ctx, client.ObjectKeyFromObject(o))
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "ToolCall" {
		return requests
	}
	call := types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}
	job, ok := o.(*batchv1.Job)
	if ok && (jobspec.WasSuspended(job) || !jobspec.HasEnded(job) && r.finished.get(call) != nil) {
		// It may start again, also after its call has ended, or was made by a request that came through late.
		return append(requests, reconcile.Request{NamespacedName: call})
	}
	return append(requests, r.ifInFlight(ctx, call)...)
}

// recordedIn are the calls in flight that record a Job as theirs.
func (r *Reconciler) recordedIn(ctx context.Context, job types.NamespacedName) []reconcile.Request {
	calls, err := r.Objects.CallsOfJob(ctx, job)
	if err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range calls {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&calls[i])})
	}
	return requests
}

// ifInFlight leaves out calls that the cache doesn't have: they have ended, or are looked at when they come into it.
func (r *Reconciler) ifInFlight(ctx context.Context, call types.NamespacedName) []reconcile.Request {
	if call.Name == "" || r.Objects.Get(ctx, call, &v1alpha1.ToolCall{}, client.DisableReadYourWritesConsistency) != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: call}}
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// onEnvironments has the calls looked at that wait for a suspended environment, when that is resumed or deleted.
func (r *Reconciler) onEnvironments() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requests) {
			before, ok := e.ObjectOld.(*v1alpha1.ExecutionEnvironment)
			after, isEnv := e.ObjectNew.(*v1alpha1.ExecutionEnvironment)
			if ok && isEnv && before.Spec.Suspend && !after.Spec.Suspend {
				r.enqueueWaiting(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requests) { r.enqueueWaiting(ctx, e.Object, q) },
	}
}

func (r *Reconciler) enqueueWaiting(ctx context.Context, env client.Object, q requests) {
	calls := &v1alpha1.ToolCallList{}
	if r.Objects.List(ctx, calls, client.InNamespace(env.GetNamespace()), client.MatchingFields{apicache.IndexInFlight: "true"}, client.UnsafeDisableDeepCopy) != nil {
		return
	}
	for i := range calls.Items {
		call := &calls.Items[i]
		if call.Status.Runner == nil && call.Status.Environment != nil && call.Status.Environment.Name == env.GetName() {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(call)})
		}
	}
}
