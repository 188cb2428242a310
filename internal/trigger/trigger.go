// Package trigger puts objects into a controller's queue when something outside the API happened to them.
//
// What is triggered before the controller runs is kept until it does. A trigger is a hint to look again: it carries no
// data, and an object that is triggered without need is only looked at once more.
package trigger

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Priorities of a look at an object. Higher goes first; what the watches bring has 0.
const (
	// PriorityStart is for what lets something start.
	PriorityStart = 50
	// PriorityResult is for results: they never wait behind starts.
	PriorityResult = 100
)

// Trigger feeds one controller. Make it with New.
type Trigger struct {
	// delay gathers what is triggered within it into one look; 0 for none.
	delay time.Duration

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting map[types.NamespacedName]int
}

// New makes a trigger. The delay gathers what is triggered within it into one look; 0 for none.
func New(delay time.Duration) *Trigger {
	return &Trigger{delay: delay, waiting: map[types.NamespacedName]int{}}
}

// Enqueue has the object looked at soon, before those of a lower priority.
func (t *Trigger) Enqueue(object types.NamespacedName, priority int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue == nil {
		t.waiting[object] = max(priority, t.waiting[object])
		return
	}
	t.add(object, priority)
}

// add needs the lock, and the queue.
func (t *Trigger) add(object types.NamespacedName, priority int) {
	request := reconcile.Request{NamespacedName: object}
	if queue, ok := t.queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		queue.AddWithOpts(priorityqueue.AddOpts{After: t.delay, Priority: ptr.To(priority)}, request)
		return
	}
	t.queue.AddAfter(request, t.delay)
}

// Source is how a controller listens.
func (t *Trigger) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queue = queue
		for object, priority := range t.waiting {
			t.add(object, priority)
		}
		clear(t.waiting)
		return nil
	})
}
