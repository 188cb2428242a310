package toolcall

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
)

// environmentOf is the environment that a call has a Job in, also where that Job is all that the earlier operator had
// time to write; empty when it has none, as a session's call.
func (r *decider) environmentOf(ctx context.Context, call *v1alpha1.ToolCall) (string, error) {
	if call.Spec.SessionRef != nil {
		return "", nil
	}
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
func reservePending(queues *queue.Queues, call *v1alpha1.ToolCall) *decide.Refusal {
	message := queues.Reserve(pendingOf(call))
	if message == "" {
		return nil
	}
	return &decide.Refusal{Reason: v1alpha1.ReasonBudgetExceeded, Message: message, Denied: true}
}
