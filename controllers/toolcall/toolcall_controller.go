// Package toolcall brings calls to their end.
//
// A pass over a call observes it (observe.go), works out its stage and runs one handler (stage.go), and
// carries out the effects that the handler returns (effects.go, apply.go). Handlers never write to the API; they may
// take places in queues and claims in memory, which taking again doesn't change. The status is written at most once in a
// pass, and what follows from it comes after the write, so that the operator may be killed at any point.
//
// The files use each other in one direction: toolcall_controller.go with watches.go and seed.go, apply.go with events.go, stage.go,
// the handlers (end.go, run.go, start.go, handover.go, place.go, approval.go), what they decide by (budgets.go, queued.go,
// deadlines.go), what they make (outcome.go with file.go, network.go and programs.go, status.go, effects.go), observe.go with
// session.go and finished.go, and reconciler.go with what a pass needs.
package toolcall

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/apicache"
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
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, calls *trigger.Trigger) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("toolcall").
		Watches(&v1alpha1.ToolCall{}, r.onCalls()).
		Watches(&v1alpha1.ToolSession{}, r.onSessions()).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.callsOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.callsOfPod)).
		Watches(&v1alpha1.ToolCallApproval{}, handler.EnqueueRequestsFromMapFunc(r.callOfApproval)).
		Watches(&v1alpha1.ExecutionEnvironment{}, r.onEnvironments()).
		// No worker begins before all sources have started.
		WatchesRawSource(source.Func(func(ctx context.Context, _ trigger.Requests) error { return r.Seed(ctx) })).
		// The queue of a replica that only waits for the lease would keep the name of every call that there ever was.
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrent, NewQueue: calls.Queue, EnableWarmup: ptr.To(false)}).
		Complete(r)
}

// Reconcile takes one look at a call and moves it on as far as that look allows.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx, req.NamespacedName)
	if errors.Is(err, toolsession.ErrBehind) {
		// All calls of all sessions may ask, for as long as the API server doesn't answer.
		return ctrl.Result{RequeueAfter: wait.Jitter(10*apicache.Lag, 1)}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	e, err := r.runStage(ctx, o)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.apply(ctx, o, e)
}
