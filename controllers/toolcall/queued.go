package toolcall

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
)

// seed makes known, before the first pass, what an operator before this one let in: which calls have a place in their environment or wait
// for one, and what each requester keeps pending. A call that was accepted before could be refused otherwise when it is decided about again.
func (r *decider) seed(ctx context.Context) error {
	r.seeding.Lock()
	defer r.seeding.Unlock()
	if r.isSeeded {
		return nil
	}
	calls := &v1alpha1.ToolCallList{}
	if err := r.Objects.List(ctx, calls, client.MatchingFields{apicache.IndexInFlight: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the calls that have not ended: %w", err)
	}
	var queued []*v1alpha1.ToolCall
	for i := range calls.Items {
		call := &calls.Items[i]
		in, err := r.environmentOf(ctx, call)
		if err != nil {
			return err
		}
		if in != "" {
			r.Queue.SetRunning(types.NamespacedName{Namespace: call.Namespace, Name: in}, holderOf(call))
		} else if isQueued(call) && call.Spec.SessionRef == nil {
			queued = append(queued, call)
		}
		// One that says nothing and has no Job is decided about when it is looked at.
		if call.Status.Runner == nil && (in != "" || len(call.Status.Conditions) > 0) {
			r.Pending.SetPending(pendingOf(call))
		}
	}
	// All who run are known by now: a limit that becomes known meanwhile lets in nobody too many.
	for _, call := range queued {
		r.Queue.SetWaiting(types.NamespacedName{Namespace: call.Namespace, Name: environmentOf(call)}, holderOf(call))
	}
	r.isSeeded = true
	return nil
}

// environmentOf is the environment that a call has a Job in, also where that Job is all that the earlier operator had
// time to write; empty when it has none.
func (r *decider) environmentOf(ctx context.Context, call *v1alpha1.ToolCall) (string, error) {
	if call.Status.Job != "" && call.Status.Environment != nil {
		return call.Status.Environment.Name, nil
	}
	job, err := r.Objects.Job(ctx, types.NamespacedName{Namespace: call.Namespace, Name: jobspec.Name(call)})
	if err != nil || job == nil {
		return "", err
	}
	decision, ours := jobspec.ReadDecision(job, call, r.Identity)
	if !ours {
		return "", nil
	}
	return decision.Environment, nil
}

func pendingOf(call *v1alpha1.ToolCall) queue.Pending {
	return queue.Pending{Holder: holderOf(call), Bytes: int64(apicache.InputBytes(call))}
}

// reservePending counts a call as pending, or says why it is refused.
func reservePending(pending *queue.Budget, call *v1alpha1.ToolCall) *decide.Refusal {
	message := pending.Reserve(pendingOf(call))
	if message == "" {
		return nil
	}
	return &decide.Refusal{Reason: v1alpha1.ReasonBudgetExceeded, Message: message, Denied: true}
}
