package controllers

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
)

// awaitTurn leaves a call alone that waits for its turn. It is judged again when that has come: what it may do
// then counts, not what it might have done before.
func (r *ToolCallReconciler) awaitTurn(_ context.Context, s *scope) (bool, error) {
	if s.bound() || s.job != nil {
		return false, nil
	}
	started := meta.FindStatusCondition(s.call.Status.Conditions, v1alpha1.ConditionStarted)
	written := started != nil && started.Reason == v1alpha1.ReasonQueued
	return written && r.Turns.IsWaiting(client.ObjectKeyFromObject(s.call), s.call.UID), nil
}

// expectTurn keeps the caller's later calls from taking their turns while this one is being judged: an access review
// may take longer than theirs.
func (r *ToolCallReconciler) expectTurn(s *scope, env *v1alpha1.ExecutionEnvironment) {
	if maxConcurrent(env) > 0 {
		s.judged = r.Turns.Announce(client.ObjectKeyFromObject(env), ticket(s.call, s.caller))
	}
}

// takeTurn lets a call pass when its environment has room for it, and otherwise says that it waits.
func (r *ToolCallReconciler) takeTurn(ctx context.Context, s *scope) (bool, error) {
	mine := ticket(s.call, s.caller)
	mine.FirstSeen = s.seen
	if s.bound() || s.job != nil {
		if name := environmentOf(s.call, s.record); name != "" {
			r.Turns.SetRunning(types.NamespacedName{Namespace: s.call.Namespace, Name: name}, mine)
		}
		return false, nil
	}
	name := client.ObjectKeyFromObject(s.environment)
	if err := r.Turns.Seed(ctx, name, func(ctx context.Context) (queue.Snapshot, error) { return r.runningIn(ctx, name) }); err != nil {
		return true, err
	}
	limit := maxConcurrent(s.environment)
	if r.Turns.Admit(name, limit, mine) {
		return false, nil
	}
	s.queued(limit)
	return true, nil
}

func maxConcurrent(env *v1alpha1.ExecutionEnvironment) int {
	return int(ptr.Deref(env.Spec.MaxConcurrentCalls, 0))
}

// ticket is a call's place in the order. Objects that nobody has written to since their creation have resource
// versions in the order of their creation; those that were queued by an operator before this one, in that order.
func ticket(call *v1alpha1.ToolCall, caller string) queue.Entry {
	version, _ := strconv.ParseInt(call.ResourceVersion, 10, 64)
	return queue.Entry{
		Call: client.ObjectKeyFromObject(call), UID: call.UID, Requester: caller,
		Created: call.CreationTimestamp.Time, Revision: version,
	}
}

// environmentOf is the environment that a call was let into.
func environmentOf(call *v1alpha1.ToolCall, record *jobspec.Record) string {
	switch {
	case record != nil:
		return record.Environment
	case call.Status.Environment != nil:
		return call.Status.Environment.Name
	default:
		return ""
	}
}

// runningIn finds the calls that were let into an environment by an operator before this one: also those
// whose Job is all that it had time to write.
func (r *ToolCallReconciler) runningIn(ctx context.Context, name types.NamespacedName) (queue.Snapshot, error) {
	calls := &v1alpha1.ToolCallList{}
	if err := r.List(ctx, calls, client.InNamespace(name.Namespace), client.MatchingFields{indexInFlight: "true"}); err != nil {
		return queue.Snapshot{}, fmt.Errorf("list the calls that have not ended: %w", err)
	}
	var running []queue.Entry
	for i := range calls.Items {
		call := &calls.Items[i]
		in, err := r.letInto(ctx, call)
		if err != nil {
			return queue.Snapshot{}, err
		}
		if in == name.Name {
			running = append(running, ticket(call, call.CallerName()))
		}
	}
	return queue.Snapshot{Running: running}, nil
}

// letInto is the environment that a call has a Job or a pod in, empty when it has none.
func (r *ToolCallReconciler) letInto(ctx context.Context, call *v1alpha1.ToolCall) (string, error) {
	if call.Status.Job != "" {
		return environmentOf(call, nil), nil
	}
	job, err := r.callJob(ctx, types.NamespacedName{Namespace: call.Namespace, Name: jobspec.Name(call)})
	if err != nil || job == nil {
		return "", err
	}
	record, ok := jobspec.ReadRecord(job, call, r.Identity)
	if !ok {
		return "", nil
	}
	return record.Environment, nil
}
