// Package trigger puts objects into a controller's queue when something outside the API happened to them.
//
// What is triggered before the controller runs is kept until it does. A trigger is a hint to look again: it carries no
// data, and an object that is triggered without need is only looked at once more.
package trigger

import (
	"context"
	"fmt"
	"sync"

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
	mu      sync.Mutex
	queue   priorityqueue.PriorityQueue[reconcile.Request]
	waiting map[types.NamespacedName]int
}

// New makes a trigger.
func New() *Trigger { return &Trigger{waiting: map[types.NamespacedName]int{}} }

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
	t.queue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(priority)}, reconcile.Request{NamespacedName: object})
}

// Source is how a controller listens.
func (t *Trigger) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		priorities, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request])
		if !ok {
			return fmt.Errorf("the controller's queue knows no priorities: it is a %T", queue)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queue = priorities
		for object, priority := range t.waiting {
			t.add(object, priority)
		}
		clear(t.waiting)
		return nil
	})
}
