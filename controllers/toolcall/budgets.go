package toolcall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolbudget"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/queue"
)

// holderOf is a call as queues and budgets know it. Calls that nobody has written to since their creation have resource versions in the
// order of their creation; calls that were told to wait, in the order in which they were told.
func holderOf(call *v1alpha1.ToolCall) queue.Holder {
	h := queue.Holder{
		Name: client.ObjectKeyFromObject(call), UID: call.UID, User: call.RequesterName(),
		Created: call.CreationTimestamp.Time, Revision: apicache.Revision(call.ResourceVersion),
	}
	if call.Spec.SessionRef != nil {
		h.Revision = positionOf(call, h.Created).Sequence
	}
	if by := call.Spec.RequestedBy; by != nil {
		h.Groups = by.Groups
	}
	return h
}

// overBudget says what follows where a call's budgets don't let it have a place, or its input wait, or not yet; nil where they do.
func (r *decider) overBudget(ctx context.Context, o *observation, what queue.Resource) (*effects, error) {
	if err := r.SeedBudgets(ctx, o.call.Namespace); errors.Is(err, queue.ErrSeeding) {
		e := &effects{wake: queue.SeedingPause}
		if len(o.call.Status.Conditions) == 0 && o.now.Sub(o.created) >= acceptWait {
			e.status = o.pending(v1alpha1.ReasonBudgetExhausted, err.Error())
		}
		return e, nil
	} else if err != nil {
		return nil, err
	}
	amount := int64(1)
	if what == queue.PendingBytes {
		amount = int64(apicache.InputBytes(o.call))
	}
	// Those behind the first call of a session may have all the bytes, and wait for it.
	mustNotWait := what == queue.PendingBytes && o.session != nil && o.session.ahead == 0
	excess := r.Budgets.Ask(what, holderOf(o.call), amount)
	switch {
	case excess == nil, mustNotWait && !excess.Never:
		return nil, nil
	case excess.Never:
		return &effects{status: o.refuse(&decide.Refusal{Reason: v1alpha1.ReasonBudgetExceeded, Message: excess.Message(), Denied: true})}, nil
	}
	e := &effects{status: o.pending(v1alpha1.ReasonBudgetExhausted, excess.Message())}
	if !excess.Until.IsZero() {
		// Nothing else happens then.
		e.wakeIn(excess.Until.Sub(o.now))
	}
	return e, nil
}

// SeedBudgets makes the budgets of a namespace known, and what is in use of them, if it has any.
func (r *decider) SeedBudgets(ctx context.Context, namespace string) error {
	rules, err := toolbudget.Rules(ctx, r.Objects, namespace)
	if err != nil || len(rules) == 0 {
		return err
	}
	return r.Budgets.Seed(ctx, namespace, func(ctx context.Context) (queue.LedgerSnapshot, error) { return r.readBudgets(ctx, namespace) })
}

func (r *decider) readBudgets(ctx context.Context, namespace string) (s queue.LedgerSnapshot, err error) {
	// A budget that is deleted from now on is known to have been.
	if s.Rules, err = toolbudget.Rules(ctx, r.Objects, namespace); err != nil {
		return s, err
	}
	sessions := &v1alpha1.ToolSessionList{}
	if err := r.Objects.List(ctx, sessions, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list the sessions of a namespace with budgets: %w", err)
	}
	processes := map[string]*host.SessionHost{}
	for i := range sessions.Items {
		session := &sessions.Items[i]
		processes[session.Name] = host.FindSessionHost(r.Hub, session)
		if toolsession.HoldsPlace(session) {
			s.Sessions = append(s.Sessions, toolsession.HolderOf(session))
		}
	}
	calls, err := r.Objects.CallsInFlight(ctx, namespace, apicache.All)
	if err != nil {
		return s, err
	}
	for _, call := range calls {
		isRunning, err := r.isPlaced(ctx, call, processes)
		if err != nil {
			return s, err
		}
		if isRunning {
			s.Running = append(s.Running, holderOf(call))
		}
		isAccepted := meta.IsStatusConditionTrue(call.Status.Conditions, v1alpha1.ConditionAccepted) || isRunning && call.Spec.SessionRef == nil
		if isAccepted && call.Status.Runner == nil && call.Status.Phase != v1alpha1.PhaseRunning {
			s.Pending = append(s.Pending, pendingOf(call))
		}
	}
	if slices.ContainsFunc(s.Rules, queue.Rule.BoundsCPU) {
		err = r.Objects.EachFinished(ctx, namespace, fields.Everything(), func(call *v1alpha1.ToolCall) {
			if spent, known := spentBy(call); known {
				s.Spent = append(s.Spent, spent)
			}
		})
	}
	return s, err
}

// spentBy is the CPU that a call which has ended used, as far as its status says so.
func spentBy(call *v1alpha1.ToolCall) (spent queue.Spent, known bool) {
	u := call.Status.Usage
	if u == nil || ptr.Deref(u.CPUMilliseconds, 0) == 0 {
		return queue.Spent{}, false
	}
	h := holderOf(call)
	return queue.Spent{Call: h.UID, User: h.User, Groups: h.Groups, Ended: call.FinishedAt(), Milliseconds: *u.CPUMilliseconds}, true
}

// isPlaced says that a call has its Job, or was handed over in its session, or may have been while nobody has heard the session's process:
// one that wasn't gives its place up in its next pass.
func (r *decider) isPlaced(ctx context.Context, call *v1alpha1.ToolCall, processes map[string]*host.SessionHost) (bool, error) {
	if ref := call.Spec.SessionRef; ref != nil {
		return call.Status.Phase == v1alpha1.PhaseRunning || processes[ref.Name].MayHave(call.UID, r.Earlier), nil
	}
	if call.Status.Runner != nil {
		return true, nil
	}
	in, err := r.environmentOf(ctx, call)
	return in != "", err
}
