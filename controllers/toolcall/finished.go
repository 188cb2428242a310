package toolcall

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/output"
)

// keepFinished is for how long a call that ended is remembered: what follows from its end (its runner leaves, the cache lets
// go of it) is over by then, mostly.
const keepFinished = 10 * time.Second

// finishedCalls are the calls that this operator ended a moment ago. Their last passes need no other look at the API
// server, and what the cache still shows of them doesn't count. After a restart they are read from the API server.
type finishedCalls struct {
	mu    sync.Mutex
	calls map[types.NamespacedName]*v1alpha1.ToolCall
	// order has them in the order of their ends.
	order []finishedCall
}

type finishedCall struct {
	key types.NamespacedName
	uid types.UID
	at  time.Time
}

// keep remembers what there is to know of a call that has just ended, and forgets those that ended longer ago.
func (e *finishedCalls) keep(call *v1alpha1.ToolCall, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls == nil {
		e.calls = map[types.NamespacedName]*v1alpha1.ToolCall{}
	}
	key := client.ObjectKeyFromObject(call)
	e.calls[key] = finishedPart(call)
	e.order = append(e.order, finishedCall{key: key, uid: call.UID, at: now})
	for now.Sub(e.order[0].at) > keepFinished {
		if old := e.order[0]; e.calls[old.key] != nil && e.calls[old.key].UID == old.uid {
			delete(e.calls, old.key)
		}
		e.order = e.order[1:]
	}
}

func (e *finishedCalls) get(key types.NamespacedName) *v1alpha1.ToolCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[key]
}

// finishedPart is the part of a call that has ended which retention and late runners need.
func finishedPart(call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	left := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: call.Namespace, Name: call.Name, UID: call.UID,
			CreationTimestamp: call.CreationTimestamp, DeletionTimestamp: call.DeletionTimestamp,
		},
		Spec: v1alpha1.ToolCallSpec{TTLSecondsAfterFinished: call.Spec.TTLSecondsAfterFinished, SessionRef: call.Spec.SessionRef},
		Status: v1alpha1.ToolCallStatus{
			Phase: call.Status.Phase, Reason: call.Status.Reason, Runner: call.Status.Runner,
			Conditions: call.Status.Conditions, Environment: call.Status.Environment, Streams: call.Status.Streams, OutputState: call.Status.OutputState,
			Pod: call.Status.Pod,
		},
	}
	if output.IsStoring(&call.Status) {
		left.Status.Artifacts = call.Status.Artifacts
	}
	return left.DeepCopy()
}
