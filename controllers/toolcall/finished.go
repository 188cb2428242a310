package toolcall

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/output"
)

// keepFinished is for how long a call that ended is remembered: what follows from its end (its runner leaves, the cache lets
// go of it) is over by then, mostly.
const keepFinished = 10 * time.Second

// finishedCalls are the calls that this operator ended a moment ago. Their last passes need no other look at the API
// server, and what the cache still shows of them doesn't count. After a restart they are read from the API server.
type finishedCalls struct{ *cache.Expiring }

func newFinishedCalls(c clock.PassiveClock) finishedCalls {
	return finishedCalls{cache.NewExpiringWithClock(passive{now: c})}
}

// passive is a clock for what only asks for the time.
type passive struct {
	clock.RealClock
	now clock.PassiveClock
}

// Now implements clock.Clock.
func (p passive) Now() time.Time { return p.now.Now() }

// keep remembers what there is to know of a call that has just ended.
func (e finishedCalls) keep(call *v1alpha1.ToolCall) {
	e.Set(client.ObjectKeyFromObject(call), finishedPart(call), keepFinished)
}

// get returns a call that ended; nil for another.
func (e finishedCalls) get(key types.NamespacedName) *v1alpha1.ToolCall {
	call, _ := e.Get(key)
	ended, _ := call.(*v1alpha1.ToolCall)
	return ended
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
			Job: call.Status.Job, Pod: call.Status.Pod,
		},
	}
	if output.IsStoring(&call.Status) {
		left.Status.Artifacts = call.Status.Artifacts
	}
	return left.DeepCopy()
}
