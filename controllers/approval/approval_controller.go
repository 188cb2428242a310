// Package approval says on each ToolCallApproval whether it counts.
//
// The controller of calls counts decisions, and records in the call's status which it counted. This one reports that, or why a decision
// doesn't count, makes the decision part of its call, so that both are deleted together, and deletes one whose call is gone. It
// decides nothing about a call.
package approval

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/approval"
)

// Reconciler writes the status of decisions.
type Reconciler struct {
	Client  client.Client
	Objects apicache.Reader
	Clock   clock.PassiveClock
	// Requesters vouches for approvers.
	Requesters *access.Requesters
	// last has the last known state of calls, by the names of decisions that may have to be judged when the call is gone.
	last sync.Map
}

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcallapprovals,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcallapprovals/status,verbs=patch

// statusDelay is how long after a change of its call a decision is looked at: most approved calls have started, or ended, by then, and what
// is written of the decision doesn't compete with that.
const statusDelay = 250 * time.Millisecond

// linger is how long a decision stays that was judged after its call was deleted: who made it asks again and again what became of it.
const linger = 2 * time.Second

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ToolCallApproval{}).
		Watches(&v1alpha1.ToolCall{}, r.Calls()).
		Complete(r)
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Calls has the decisions about a call looked at when that changes, or leaves the cache because it has ended or is deleted: then at once,
// since it may be gone soon, and nothing is left that the status would compete with.
func (r *Reconciler) Calls() handler.Funcs {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requests) {
			r.eachDecision(ctx, e.ObjectNew, func(_ *v1alpha1.ToolCall, decision reconcile.Request) { q.AddAfter(decision, statusDelay) })
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requests) {
			r.eachDecision(ctx, e.Object, func(call *v1alpha1.ToolCall, decision reconcile.Request) {
				r.last.Store(decision.NamespacedName, call)
				q.Add(decision)
			})
		},
	}
}

// eachDecision visits the decisions about a call that people decide about.
func (r *Reconciler) eachDecision(ctx context.Context, o client.Object, visit func(call *v1alpha1.ToolCall, decision reconcile.Request)) {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || call.Status.Approval == nil {
		return
	}
	decisions, err := r.Objects.Decisions(ctx, client.ObjectKeyFromObject(call))
	if err != nil {
		return
	}
	for i := range decisions {
		visit(call, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&decisions[i])})
	}
}

// Reconcile looks at a decision.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	decision := &v1alpha1.ToolCallApproval{}
	err := r.Objects.Get(ctx, req.NamespacedName, decision)
	if apierrors.IsNotFound(err) || err == nil && isDone(decision) {
		r.last.Delete(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if waits, err := r.waits(ctx, decision); err != nil || waits {
		return ctrl.Result{}, err
	}
	// It may be about what the cache doesn't show yet.
	call, err := r.Objects.LiveCall(ctx, callOf(decision))
	if err != nil {
		return ctrl.Result{}, err
	}
	if call == nil || string(call.UID) != decision.Spec.CallRef.UID {
		return r.endWithoutCall(ctx, decision)
	}
	if err := r.report(ctx, call, decision); err != nil || !isJudged(decision) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.setOwner(ctx, decision, call))
}

// report writes once whether a decision counts, if that is known.
func (r *Reconciler) report(ctx context.Context, call *v1alpha1.ToolCall, decision *v1alpha1.ToolCallApproval) error {
	if isJudged(decision) {
		return nil
	}
	verdict, err := r.judge(ctx, call, decision)
	if err != nil || verdict == nil {
		return err
	}
	return r.writeStatus(ctx, decision, verdict)
}

// endWithoutCall deletes a decision whose call is gone. One that the call's last known state has an answer to gets that first, and stays
// for a moment.
func (r *Reconciler) endWithoutCall(ctx context.Context, decision *v1alpha1.ToolCallApproval) (ctrl.Result, error) {
	last, _ := r.last.Load(client.ObjectKeyFromObject(decision))
	if call, ok := last.(*v1alpha1.ToolCall); ok && string(call.UID) == decision.Spec.CallRef.UID {
		if err := r.report(ctx, call, decision); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if said := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionAccepted); said != nil {
		if left := said.LastTransitionTime.Add(linger).Sub(r.Clock.Now()); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
	}
	err := r.Client.Delete(ctx, decision, client.Preconditions{UID: &decision.UID})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// waits says that the controller of calls is about to count a decision. The call's next change has the decision looked at again.
func (r *Reconciler) waits(ctx context.Context, decision *v1alpha1.ToolCallApproval) (bool, error) {
	if isJudged(decision) {
		return false, nil
	}
	call := &v1alpha1.ToolCall{}
	err := r.Objects.Get(ctx, callOf(decision), call)
	if err != nil || string(call.UID) != decision.Spec.CallRef.UID {
		return false, client.IgnoreNotFound(err)
	}
	verdict, err := r.judge(ctx, call, decision)
	if verdict != nil {
		r.last.Store(client.ObjectKeyFromObject(decision), call)
	}
	return verdict == nil, err
}

func callOf(decision *v1alpha1.ToolCallApproval) types.NamespacedName {
	return types.NamespacedName{Namespace: decision.Namespace, Name: decision.Spec.CallRef.Name}
}

func isJudged(decision *v1alpha1.ToolCallApproval) bool {
	return decision.Status.Phase == v1alpha1.ApprovalAccepted || decision.Status.Phase == v1alpha1.ApprovalRejected
}

// isDone says that nothing is left to do about a decision.
func isDone(decision *v1alpha1.ToolCallApproval) bool {
	return decision.DeletionTimestamp != nil || isJudged(decision) && isOwned(decision)
}

// isOwned says that a decision is part of its call.
func isOwned(decision *v1alpha1.ToolCallApproval) bool {
	return slices.ContainsFunc(decision.OwnerReferences, func(o metav1.OwnerReference) bool { return string(o.UID) == decision.Spec.CallRef.UID })
}

// setOwner makes a decision part of its call once it says whether it counts: nothing is written before, since that would compete with the start
// of an approved call, and a decision whose call is gone would be deleted without an answer. Until then, this controller deletes it.
func (r *Reconciler) setOwner(ctx context.Context, decision *v1alpha1.ToolCallApproval, call *v1alpha1.ToolCall) error {
	if isOwned(decision) {
		return nil
	}
	before := decision.DeepCopy()
	decision.OwnerReferences = append(decision.OwnerReferences, metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ToolCall", Name: call.Name, UID: call.UID,
	})
	if err := r.Client.Patch(ctx, decision, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("make the decision part of its call: %w", err)
	}
	return nil
}

// judge says whether a decision counts; nil while the controller of calls hasn't said so.
func (r *Reconciler) judge(ctx context.Context, call *v1alpha1.ToolCall, decision *v1alpha1.ToolCallApproval) (*metav1.Condition, error) {
	vouched, missing, err := r.Requesters.ApprovalVouched(ctx, decision)
	if err != nil {
		return nil, err
	}
	if !vouched {
		return rejected(v1alpha1.ReasonApproverUnknown, "nobody is known to have made the decision, because an admission policy that checks it is not in force: "+missing), nil
	}
	if isCounted(call.Status.Approval, decision) {
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDecisionCounts, Message: "the decision counts for its call"}, nil
	}
	var counted []v1alpha1.CountedApproval
	if call.Status.Approval != nil {
		counted = call.Status.Approval.ApprovedBy
	}
	why := approval.Reject(call, decision, counted, r.Clock.Now())
	switch {
	case why != nil:
		return rejected(why.Reason, why.Message), nil
	case call.AwaitsApproval():
		return nil, nil
	case call.Status.Phase.Terminal() && call.Status.Reason != v1alpha1.ReasonApprovalDenied && !meta.IsStatusConditionTrue(call.Status.Conditions, v1alpha1.ConditionApproved):
		return rejected(v1alpha1.ReasonCallEnded, "the call had ended by then"), nil
	default:
		return rejected(v1alpha1.ReasonAlreadyDecided, "the call had been decided about by then"), nil
	}
}

// isCounted says that a call's status names the decision.
func isCounted(of *v1alpha1.ApprovalStatus, decision *v1alpha1.ToolCallApproval) bool {
	if of == nil {
		return false
	}
	named := func(c v1alpha1.CountedApproval) bool { return c.UID == string(decision.UID) }
	return slices.ContainsFunc(of.ApprovedBy, named) || named(ptr.Deref(of.DeniedBy, v1alpha1.CountedApproval{}))
}

func rejected(reason, message string) *metav1.Condition {
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func (r *Reconciler) writeStatus(ctx context.Context, decision *v1alpha1.ToolCallApproval, verdict *metav1.Condition) error {
	before := decision.DeepCopy()
	decision.Status.Phase = v1alpha1.ApprovalRejected
	if verdict.Status == metav1.ConditionTrue {
		decision.Status.Phase = v1alpha1.ApprovalAccepted
	}
	verdict.Type, verdict.ObservedGeneration, verdict.LastTransitionTime = v1alpha1.ConditionAccepted, decision.Generation, metav1.NewTime(r.Clock.Now())
	meta.SetStatusCondition(&decision.Status.Conditions, *verdict)
	if err := r.Client.Status().Patch(ctx, decision, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the decision's status: %w", err)
	}
	return nil
}
