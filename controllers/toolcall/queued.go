package toolcall

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
)

// entryOf is a call's place in the order. Objects that nobody has written to since their creation have resource versions
// in the order of their creation; those that an earlier operator queued, in that order.
func entryOf(call *v1alpha1.ToolCall) queue.Entry {
	revision, _ := strconv.ParseInt(call.ResourceVersion, 10, 64)
	return queue.Entry{
		Call: client.ObjectKeyFromObject(call), UID: call.UID, Requester: call.RequesterName(),
		Created: call.CreationTimestamp.Time, Revision: revision,
	}
}

// seedQueue makes the calls known that were let into an environment by an operator before this one.
func (r *decider) seedQueue(ctx context.Context, name types.NamespacedName) error {
	return r.Queue.Seed(ctx, name, func(ctx context.Context) (queue.Snapshot, error) { return r.readQueue(ctx, name) })
}

func (r *decider) readQueue(ctx context.Context, name types.NamespacedName) (queue.Snapshot, error) {
	calls := &v1alpha1.ToolCallList{}
	if err := r.Objects.List(ctx, calls, client.InNamespace(name.Namespace), client.MatchingFields{apicache.IndexInFlight: "true"}); err != nil {
		return queue.Snapshot{}, fmt.Errorf("list the calls that have not ended: %w", err)
	}
	snapshot := queue.Snapshot{LastAdmitted: map[string]time.Time{}}
	for i := range calls.Items {
		call := &calls.Items[i]
		in, err := r.environmentOf(ctx, call)
		if err != nil {
			return queue.Snapshot{}, err
		}
		if in == name.Name {
			entry := entryOf(call)
			snapshot.Running = append(snapshot.Running, entry)
			if at := admittedAt(call); at.After(snapshot.LastAdmitted[entry.Requester]) {
				snapshot.LastAdmitted[entry.Requester] = at
			}
		}
		if isQueued(call) && call.Status.Environment != nil && call.Status.Environment.Name == name.Name {
			snapshot.Waiting = append(snapshot.Waiting, entryOf(call))
		}
	}
	return snapshot, nil
}

// admittedAt is when a call with a Job was let into its environment, as far as its status tells.
func admittedAt(call *v1alpha1.ToolCall) time.Time {
	for _, kind := range []string{v1alpha1.ConditionStarted, v1alpha1.ConditionAccepted} {
		if c := meta.FindStatusCondition(call.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return call.CreationTimestamp.Time
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

// seedPending counts the calls that an operator before this one let in. Otherwise a requester could keep that many more
// pending, and a call that was accepted before could be refused when it is decided about again.
func (r *decider) seedPending(ctx context.Context) error {
	return r.Pending.Seed(ctx, r.readPending)
}

func (r *decider) readPending(ctx context.Context) ([]queue.Pending, error) {
	calls := &v1alpha1.ToolCallList{}
	if err := r.Objects.List(ctx, calls, client.MatchingFields{apicache.IndexInFlight: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the calls that have not ended: %w", err)
	}
	var pending []queue.Pending
	for i := range calls.Items {
		call := &calls.Items[i]
		if call.Status.Runner != nil {
			continue
		}
		if len(call.Status.Conditions) == 0 {
			in, err := r.environmentOf(ctx, call)
			if err != nil {
				return nil, err
			}
			if in == "" {
				// It is decided about when it is looked at.
				continue
			}
		}
		pending = append(pending, pendingOf(call))
	}
	return pending, nil
}

func pendingOf(call *v1alpha1.ToolCall) queue.Pending {
	return queue.Pending{
		Call: client.ObjectKeyFromObject(call), UID: call.UID, Requester: call.RequesterName(), Bytes: int64(apicache.InputBytes(call)),
	}
}

// reservePending counts a call as pending, or says why it is refused.
func reservePending(pending *queue.Budget, call *v1alpha1.ToolCall) *decide.Refusal {
	message := pending.Reserve(pendingOf(call))
	if message == "" {
		return nil
	}
	return &decide.Refusal{Reason: v1alpha1.ReasonBudgetExceeded, Message: message, Denied: true}
}
