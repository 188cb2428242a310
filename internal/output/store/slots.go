package store

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// slots bounds how much is done at once, over all namespaces and for each. A namespace that wants more waits for itself,
// not in the queue with the others.
type slots struct {
	all  *semaphore.Weighted
	each int64

	mu     sync.Mutex
	shares map[string]*share
}

// share is what a namespace may do at once. It is there while somebody wants or has a slot.
type share struct {
	*semaphore.Weighted
	users int
}

func newSlots(all, each int64) *slots {
	return &slots{all: semaphore.NewWeighted(all), each: each, shares: map[string]*share{}}
}

// acquire waits for a slot, and returns what gives it back.
func (s *slots) acquire(ctx context.Context, namespace string) (release func(), err error) {
	own := s.enter(namespace)
	if err := own.Acquire(ctx, 1); err != nil {
		s.leave(namespace)
		return nil, err
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		own.Release(1)
		s.leave(namespace)
		return nil, err
	}
	return func() {
		s.all.Release(1)
		own.Release(1)
		s.leave(namespace)
	}, nil
}

func (s *slots) enter(namespace string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.shares[namespace]
	if own == nil {
		own = &share{Weighted: semaphore.NewWeighted(s.each)}
		s.shares[namespace] = own
	}
	own.users++
	return own
}

func (s *slots) leave(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shares[namespace].users--; s.shares[namespace].users == 0 {
		delete(s.shares, namespace)
	}
}
