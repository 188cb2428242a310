// Package toolsession keeps sessions: their pods, their workspace claims, and their end.
//
// A pass over a session observes it (observe.go), works out its stage and runs one handler (stage.go), and
// carries out the effects that the handler returns (effects.go, apply.go). Handlers never write to the API. The status is
// written at most once in a pass, and what a runner is told follows from what is written, so that the operator may be
// killed at any point. What the controller of calls needs to know of a session is in serving.go.
//
// A process K that the status records is the only one that calls of the session were handed to, until each of them has
// ended. So the end of a session, or its suspension, is written first; then K is told, and its calls end; and only when
// none is left is another process recorded. That K is gone is proven by lost.go, never guessed.
package toolsession

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/trigger"
)

// What it reads of environments, skills, policies, Jobs and pods, and what it asks about requesters, the controller of
// calls has the rights for. patch on sessions is for the finalizer. A claim that is kept belongs to nobody, so the
// operator deletes the others itself when their session ends. A Node that is gone proves that a pod's processes are.
//
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolsessions,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolsessions/status,verbs=patch
// +kubebuilder:rbac:groups="",roleName=toolcall-operator-namespaced,resources=persistentvolumeclaims,verbs=get;create;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// SetupWithManager registers the controller. sessions has a session looked at whose runner came or went.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, sessions *trigger.Trigger) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ToolSession{}).
		Watches(&v1alpha1.ToolSession{}, r.onPlaces()).
		Watches(&v1alpha1.ExecutionEnvironment{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ToolCall{}, r.onCalls()).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.sessionsOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.sessionsOfPod)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrent, NewQueue: sessions.Queue, EnableWarmup: ptr.To(false)}).
		Complete(r)
}

// Reconcile takes one look at a session and moves it on as far as that look allows.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx, req.NamespacedName)
	if errors.Is(err, ErrBehind) {
		// All sessions ask, for as long as the API server doesn't answer.
		return ctrl.Result{RequeueAfter: wait.Jitter(10*apicache.Lag, 1)}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	by := host.Claimant{Kind: wire.KindSession, NamespacedName: req.NamespacedName}
	if o == nil {
		r.Hub.DismissSession(req.Namespace, req.Name, "", deletedSession)
		r.Hosts.ReleaseOthers(by, "")
		r.Budgets.Release(req.NamespacedName, queue.Sessions)
		return ctrl.Result{}, nil
	}
	// A session that had this name before is gone.
	r.Hub.DismissSession(req.Namespace, req.Name, string(o.session.UID), deletedSession)
	r.Hosts.ReleaseOthers(by, string(o.session.UID))
	e, err := r.runStage(ctx, o)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.apply(ctx, o, e)
}

const deletedSession = "the ToolSession was deleted"

// sessionsOfPod maps a pod to the session whose Job it belongs to, or that records its Job.
func (r *watches) sessionsOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "Job" || o.GetLabels()[jobspec.LabelSession] == "" && o.GetLabels()[jobspec.LabelPool] == "" {
		return nil
	}
	return requests(r.SessionsOfJob(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}))
}

// sessionsOfJob maps a Job to the session that owns it, or that records it.
func (r *watches) sessionsOfJob(ctx context.Context, o client.Object) []reconcile.Request {
	if owner := jobspec.SessionOf(o); owner != "" {
		return requests([]types.NamespacedName{{Namespace: o.GetNamespace(), Name: owner}})
	}
	if o.GetLabels()[jobspec.LabelPool] == "" {
		return nil
	}
	return requests(r.SessionsOfJob(ctx, client.ObjectKeyFromObject(o)))
}

// SessionsOfJob are the sessions that own a Job, or record it as theirs.
func (r *watches) SessionsOfJob(ctx context.Context, name types.NamespacedName) []types.NamespacedName {
	job := &batchv1.Job{}
	if r.Objects.Get(ctx, name, job, client.DisableReadYourWritesConsistency) == nil {
		if owner := jobspec.SessionOf(job); owner != "" {
			return []types.NamespacedName{{Namespace: name.Namespace, Name: owner}}
		}
	}
	sessions, err := r.Objects.SessionsOfJob(ctx, name)
	if err != nil {
		return nil
	}
	var names []types.NamespacedName
	for i := range sessions {
		names = append(names, client.ObjectKeyFromObject(&sessions[i]))
	}
	return names
}

func requests(names []types.NamespacedName) []reconcile.Request {
	var list []reconcile.Request
	for _, name := range names {
		list = append(list, reconcile.Request{NamespacedName: name})
	}
	return list
}
