package toolsession

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/queue"
)

// HolderOf is a session as its budgets know it.
func HolderOf(session *v1alpha1.ToolSession) queue.Holder {
	h := queue.Holder{
		Name: client.ObjectKeyFromObject(session), UID: session.UID, User: requesterOf(session),
		Created: session.CreationTimestamp.Time, Revision: apicache.Revision(session.ResourceVersion),
	}
	if by := session.Spec.RequestedBy; by != nil {
		h.Groups = by.Groups
	}
	return h
}

// overBudget says what follows where the session may have no pod by its budgets, or not yet; nil where it may.
func (r *Reconciler) overBudget(ctx context.Context, o *observation) (*effects, error) {
	if err := r.SeedBudgets(ctx, o.session.Namespace); errors.Is(err, queue.ErrSeeding) {
		e := &effects{hold: true, wake: queue.SeedingPause}
		if o.session.Status.Phase == "" {
			e.status = o.pending(v1alpha1.ReasonBudgetExhausted, err.Error())
		}
		return e, nil
	} else if err != nil {
		return nil, err
	}
	excess := r.Budgets.Ask(queue.Sessions, HolderOf(o.session), 1)
	switch {
	case excess == nil:
		return nil, nil
	case excess.Never:
		return &effects{status: o.failed(v1alpha1.ReasonBudgetExceeded, excess.Message())}, nil
	default:
		return &effects{hold: true, status: o.pending(v1alpha1.ReasonBudgetExhausted, excess.Message())}, nil
	}
}

// leaveBudgets gives back what a session holds of its budgets that has no pod, nor waits for them, once that is written.
func (r *applier) leaveBudgets(o *observation, e *effects) {
	after := *o.session
	if e.status != nil {
		after.Status = *e.status
	}
	if !HoldsPlace(&after) && after.Status.Reason != v1alpha1.ReasonBudgetExhausted {
		r.Budgets.Release(o.key(), queue.Sessions)
	}
}
