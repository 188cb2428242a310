package controllers

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// fieldPhase is the field that the API server selects calls by.
const fieldPhase = "status.phase"

// InFlight selects the calls that have not ended. No others are in the cache, so that what the operator needs doesn't
// grow with what the cluster remembers.
func InFlight() fields.Selector {
	var not []fields.Selector
	for _, phase := range v1alpha1.TerminalPhases() {
		not = append(not, fields.OneTermNotEqualSelector(fieldPhase, string(phase)))
	}
	return fields.AndSelectors(not...)
}

// finished selects the others: a phase that is neither of the ones before the last.
func finished() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector(fieldPhase, ""),
		fields.OneTermNotEqualSelector(fieldPhase, string(v1alpha1.PhasePending)),
		fields.OneTermNotEqualSelector(fieldPhase, string(v1alpha1.PhaseRunning)),
	)
}

// endedFor is for how long a call that ended is remembered: what follows from its end (its runner leaves, the cache lets
// go of it) is over by then, mostly.
const endedFor = 10 * time.Second

// endedCalls are the calls that this operator ended a moment ago. Their last passes need no other look at the API
// server, and what the cache still shows of them is believed no more.
type endedCalls struct {
	mu    sync.Mutex
	calls map[types.NamespacedName]*v1alpha1.ToolCall
	// order has them in the order of their ends.
	order []endedCall
}

type endedCall struct {
	key types.NamespacedName
	uid types.UID
	at  time.Time
}

// keep remembers what there is to know of a call that has just ended, and forgets those that ended longer ago.
func (e *endedCalls) keep(call *v1alpha1.ToolCall, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls == nil {
		e.calls = map[types.NamespacedName]*v1alpha1.ToolCall{}
	}
	key := client.ObjectKeyFromObject(call)
	e.calls[key] = remains(call)
	e.order = append(e.order, endedCall{key: key, uid: call.UID, at: now})
	for now.Sub(e.order[0].at) > endedFor {
		if old := e.order[0]; e.calls[old.key] != nil && e.calls[old.key].UID == old.uid {
			delete(e.calls, old.key)
		}
		e.order = e.order[1:]
	}
}

func (e *endedCalls) of(key types.NamespacedName) *v1alpha1.ToolCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[key]
}

// remains is the part of a call that has ended which retention and late runners need.
func remains(call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	left := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: call.Namespace, Name: call.Name, UID: call.UID,
			CreationTimestamp: call.CreationTimestamp, DeletionTimestamp: call.DeletionTimestamp,
		},
		Spec: v1alpha1.ToolCallSpec{TTLSecondsAfterFinished: call.Spec.TTLSecondsAfterFinished},
		Status: v1alpha1.ToolCallStatus{
			Phase: call.Status.Phase, Reason: call.Status.Reason, Runner: call.Status.Runner,
			Conditions: call.Status.Conditions, Environment: call.Status.Environment,
		},
	}
	return left.DeepCopy()
}

// readBack says whether what is read after a write of the status has to show it. The end of a call is never seen in
// the cache.
func readBack(call *v1alpha1.ToolCall) client.SubResourcePatchOption {
	if call.Status.Phase.Terminal() {
		return client.DisableReadYourWritesConsistency
	}
	return &client.SubResourcePatchOptions{}
}

// find returns a call that is in flight from the cache, and one that has ended from memory or, when somebody else
// ended it or longer ago, from the API server.
func (r *ToolCallReconciler) find(ctx context.Context, key types.NamespacedName) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	err := r.Get(ctx, key, call)
	ended := r.ended.of(key)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, err
	case ended != nil && (err != nil || ended.UID == call.UID):
		return ended, nil
	case err == nil:
		return call, nil
	}
	return call, r.Live.Get(ctx, key, call)
}
