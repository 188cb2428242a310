package controllers

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Signals puts calls into the reconciler's queue when something outside the API happened to them. What is
// signalled before the queue runs is kept until it does.
type Signals struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting map[types.NamespacedName]struct{}
}

// NewSignals makes one.
func NewSignals() *Signals {
	return &Signals{waiting: map[types.NamespacedName]struct{}{}}
}

// Wake has the call reconciled soon.
func (s *Signals) Wake(call types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == nil {
		s.waiting[call] = struct{}{}
		return
	}
	s.queue.Add(reconcile.Request{NamespacedName: call})
}

// Source is how a controller listens.
func (s *Signals) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue = queue
		for call := range s.waiting {
			queue.Add(reconcile.Request{NamespacedName: call})
		}
		clear(s.waiting)
		return nil
	})
}
