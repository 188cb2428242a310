// Package trigger puts objects into a controller's queue when something outside the API happened to them.
//
// The queue is there before its controller: what is triggered meanwhile waits in it. A trigger is a hint to look again: it carries no
// data, and an object that is triggered without need is only looked at once more.
package trigger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Priorities of a look at an object. Higher goes first; what the watches bring has 0.
const (
	// PriorityStart is for what lets something start.
	PriorityStart = 50
	// PriorityResult is for results: they never wait behind starts.
	PriorityResult = 100
)

// The back-off of an object that can't be dealt with. Others may wait for it, like the line of a session for its first call, so it is
// looked at again soon.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Requests is a controller's queue.
type Requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Trigger feeds one controller. Make it with New.
type Trigger struct {
	queue priorityqueue.PriorityQueue[reconcile.Request]
}

// New makes the trigger of the controller of a name, and its queue.
func New(controller string) *Trigger {
	return &Trigger{queue: priorityqueue.New(controller, func(o *priorityqueue.Opts[reconcile.Request]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
	})}
}

// Enqueue has the object looked at soon, before those of a lower priority.
func (t *Trigger) Enqueue(object types.NamespacedName, priority int) {
	t.queue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(priority)}, reconcile.Request{NamespacedName: object})
}

// Queue is the controller's NewQueue. It has a name and a back-off of its own.
func (t *Trigger) Queue(string, workqueue.TypedRateLimiter[reconcile.Request]) Requests {
	return t.queue
}
