package controllers

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/tracing"
	"toolcall.dev/operator/internal/turns"
)

// ToolCallReconciler brings calls to their end.
type ToolCallReconciler struct {
	Shared
	Hub      *dispatch.Hub
	Identity *dispatch.Identity
	Runtime  jobspec.Runtime
	Access   *Access
	Callers  *Callers
	// Trace makes spans of finished calls; nil for none.
	Trace *tracing.Tracer
	// Pools are told when a call takes a waiting pod.
	Pools *Signals
	// Expiry has finished calls looked at when their time is up.
	Expiry *Expiry
	// Turns hold calls back whose environment runs as many as it may.
	Turns *turns.Turns

	// ended are the calls that ended a moment ago, launched those that have a Job and don't say so yet.
	ended    endedCalls
	launched moments
	// untaken are those whose Job the API server doesn't take, untold those whose pod's token it doesn't take.
	untaken, untold moments
}

// +kubebuilder:rbac:groups=toolcall.dev,resources=toolcalls,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=toolcall.dev,resources=toolcalls/status,verbs=patch
// +kubebuilder:rbac:groups=toolcall.dev,resources=executionenvironments;executionpolicies;skills,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings;validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch

// SetupWithManager registers the controller.
func (r *ToolCallReconciler) SetupWithManager(mgr ctrl.Manager, signals *Signals, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ToolCall{}).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.callOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.callOfPod)).
		WatchesRawSource(signals.Source()).
		// The queue of a replica that only waits for the lease would keep the name of every call that there ever was.
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, EnableWarmup: ptr.To(false)}).
		Complete(r)
}

// phases are what a call goes through, in order. Each looks whether it has something to do; one that ends
// the pass says so.
func (r *ToolCallReconciler) phases() []phase {
	return []phase{
		r.retire,
		r.takeResult,
		r.stopIfAsked,
		r.refuseEdited,
		r.awaitTurn,
		r.accept,
		r.takeTurn,
		r.adopt,
		r.launch,
		r.bind,
		r.watchStart,
		r.watchRun,
	}
}

// phase is one step of a pass. done ends the pass.
type phase func(context.Context, *scope) (done bool, err error)

// Reconcile takes one look at a call and moves it on as far as that look allows.
func (r *ToolCallReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.gather(ctx, req)
	if apierrors.IsNotFound(err) {
		r.Hub.Dismiss(req.Namespace, req.Name, "the ToolCall was deleted")
		r.Turns.Leave(req.NamespacedName)
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		if s.judged != nil {
			s.judged()
		}
	}()
	var failed error
	for _, next := range r.phases() {
		done, err := next(ctx, s)
		if err != nil {
			failed = err
		}
		if done || err != nil {
			break
		}
	}
	if err := r.commit(ctx, s); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			// Somebody wrote in between: look again at what is there now.
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil
		}
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: s.wake}, failed
}

// commit writes the status if it changed, and then does what follows from the write.
func (r *ToolCallReconciler) commit(ctx context.Context, s *scope) error {
	if s.statusChanged() {
		s.call.Status.ObservedGeneration = s.call.Generation
		patch := client.MergeFromWithOptions(s.original, client.MergeFromWithOptimisticLock{})
		written := s.call.DeepCopy()
		if err := r.Status().Patch(ctx, written, patch, readBack(s.call)); err != nil {
			return fmt.Errorf("write the call's status: %w", err)
		}
		if s.call.Status.Phase.Terminal() {
			r.forget(client.ObjectKeyFromObject(s.call))
			r.ended.keep(s.call, s.now)
		}
		r.announce(s)
	}
	if s.call.Status.Phase.Terminal() {
		r.Turns.Leave(client.ObjectKeyFromObject(s.call))
	}
	for _, follow := range s.follows {
		if err := follow(ctx); err != nil {
			return err
		}
	}
	return nil
}

// forget drops what is remembered of a call in flight.
func (r *ToolCallReconciler) forget(call types.NamespacedName) {
	for _, m := range []*moments{&r.launched, &r.untaken, &r.untold} {
		m.forget(call)
	}
}
