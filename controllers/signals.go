package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Signals puts calls into the reconciler's queue when something outside the API happened to them. What is
// signalled before the queue runs is kept until it does.
type Signals struct {
	// delay gathers what is signalled within it into one pass; 0 for none.
	delay time.Duration

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting map[types.NamespacedName]struct{}
}

// NewSignals makes one without a delay.
func NewSignals() *Signals { return newSignals(0) }

func newSignals(delay time.Duration) *Signals {
	return &Signals{delay: delay, waiting: map[types.NamespacedName]struct{}{}}
}

// Wake has the call reconciled soon.
func (s *Signals) Wake(call types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == nil {
		s.waiting[call] = struct{}{}
		return
	}
	s.add(call)
}

// add needs the lock, and the queue.
func (s *Signals) add(call types.NamespacedName) {
	request := reconcile.Request{NamespacedName: call}
	if s.delay > 0 {
		s.queue.AddAfter(request, s.delay)
		return
	}
	s.queue.Add(request)
}

// Source is how a controller listens.
func (s *Signals) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue = queue
		for call := range s.waiting {
			s.add(call)
		}
		clear(s.waiting)
		return nil
	})
}
