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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/trigger"
)

// Reconciler writes the status of decisions.
type Reconciler struct {
	Client  client.Client
	Objects apicache.Reader
	Clock   clock.PassiveClock
	// Requesters vouches for approvers.
	Requesters *access.Requesters
	// Tell makes an Event of a call.
	Tell func(call *v1alpha1.ToolCall, kind, reason, action, message string)
}

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcallapprovals,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcallapprovals/status,verbs=patch

// statusDelay is how long after a change of it or of its call a decision is looked at: most approved calls have started, or ended, by then,
// and what is read and written of the decision doesn't compete with that.
const statusDelay = 250 * time.Millisecond

// workers is how many decisions are looked at at the same time, workersOfNamespace how many of one namespace: its admission webhooks may be
// slow, and people wait for the answer.
const (
	workers            = 8
	workersOfNamespace = 2
)

// SetupWithManager registers the controller. What becomes of a call that people decide about has its decisions looked at.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	decisions := trigger.New("toolcallapproval")
	return ctrl.NewControllerManagedBy(mgr).
		Named("toolcallapproval").
		Watches(&v1alpha1.ToolCallApproval{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q trigger.Requests) { enqueue(e.Object, q) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q trigger.Requests) { enqueue(e.ObjectNew, q) },
		}).
		Watches(&v1alpha1.ToolCall{}, r.onCalls()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: decisions.Queue}).
		Complete(fair.OfNamespaces(r, workersOfNamespace, func(decision types.NamespacedName) { decisions.Enqueue(decision, 0) }))
}

func enqueue(decision client.Object, q trigger.Requests) {
	q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(decision)}, statusDelay)
}

// onCalls has the decisions looked at about a call that asks for some, or did.
func (r *Reconciler) onCalls() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Requests) {
			// Where the policy needs no approval any more, only the call as it was says that it waited for some.
			r.enqueueDecisions(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		// So a call disappears from the cache that has ended.
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Requests) {
			r.enqueueDecisions(ctx, q, e.Object)
		},
	}
}

// enqueueDecisions has the decisions about a call looked at, if it asks for some in one of its states.
func (r *Reconciler) enqueueDecisions(ctx context.Context, q trigger.Requests, states ...client.Object) {
	if !slices.ContainsFunc(states, asksForDecisions) {
		return
	}
	decisions, err := r.Objects.Decisions(ctx, client.ObjectKeyFromObject(states[0]))
	if err != nil {
		return
	}
	for i := range decisions {
		enqueue(&decisions[i], q)
	}
}

func asksForDecisions(o client.Object) bool {
	call, ok := o.(*v1alpha1.ToolCall)
	return ok && call.Status.Approval != nil
}

// Reconcile looks at a decision.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	decision := &v1alpha1.ToolCallApproval{}
	if err := r.Objects.Get(ctx, req.NamespacedName, decision); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if decision.DeletionTimestamp != nil || isJudged(decision) {
		return ctrl.Result{}, nil
	}
	// It may be about what the cache doesn't show yet.
	call, err := r.Objects.LiveCall(ctx, types.NamespacedName{Namespace: decision.Namespace, Name: decision.Spec.CallRef.Name})
	if err != nil {
		return ctrl.Result{}, err
	}
	if call == nil || string(call.UID) != decision.Spec.CallRef.UID {
		err := r.Client.Delete(ctx, decision, client.Preconditions{UID: &decision.UID})
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	verdict, err := r.judge(ctx, call, decision)
	if err != nil || verdict == nil {
		// While it isn't counted, the call's next change has the decision looked at again.
		return ctrl.Result{}, err
	}
	if err := r.setOwner(ctx, decision, call); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.writeStatus(ctx, decision, verdict); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if verdict.Status == metav1.ConditionTrue && decision.Spec.Decision == v1alpha1.DecisionApprove {
		r.Tell(call, corev1.EventTypeNormal, v1alpha1.ReasonApproved, "Approve", fmt.Sprintf("%q approved the call", approval.CountedOf(decision).Username))
	}
	return ctrl.Result{}, nil
}

func isJudged(decision *v1alpha1.ToolCallApproval) bool {
	return decision.Status.Phase == v1alpha1.ApprovalAccepted || decision.Status.Phase == v1alpha1.ApprovalRejected
}

// setOwner makes a decision part of its call. Nothing is written before the decision is judged: such a write would compete with the start
// of an approved call. Until then, this controller deletes the decision of a call that is gone.
func (r *Reconciler) setOwner(ctx context.Context, decision *v1alpha1.ToolCallApproval, call *v1alpha1.ToolCall) error {
	if slices.ContainsFunc(decision.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == call.UID }) {
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
