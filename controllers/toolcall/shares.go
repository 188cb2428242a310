package toolcall

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// shares bounds how many calls of one namespace do something at the same time, as creating their Jobs: a slow admission webhook of one
// namespace then keeps only a part of the workers, and never those that write results. Calls that find no share wait in
// order, and for each share that is free one of them is woken.
type shares struct {
	each int
	wake func(types.NamespacedName)

	mu         sync.Mutex
	namespaces map[string]*share
}

type share struct {
	inUse   int
	waiting []types.NamespacedName
}

func newShares(each int, wake func(types.NamespacedName)) *shares {
	return &shares{each: each, wake: wake, namespaces: map[string]*share{}}
}

// acquire takes a share, if there is one, or has the call woken when there is. release gives it back.
func (s *shares) acquire(call types.NamespacedName) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[call.Namespace]
	if n == nil {
		n = &share{}
		s.namespaces[call.Namespace] = n
	}
	if n.inUse >= s.each {
		if !slices.Contains(n.waiting, call) {
			n.waiting = append(n.waiting, call)
		}
		return nil, false
	}
	n.inUse++
	n.waiting = slices.DeleteFunc(n.waiting, func(other types.NamespacedName) bool { return other == call })
	return func() { s.release(call.Namespace) }, true
}

func (s *shares) release(namespace string) {
	s.update(namespace, func(n *share) { n.inUse-- })
}

// forget drops a call that doesn't wait any more.
func (s *shares) forget(call types.NamespacedName) {
	s.update(call.Namespace, func(n *share) {
		n.waiting = slices.DeleteFunc(n.waiting, func(other types.NamespacedName) bool { return other == call })
	})
}

// update changes a namespace's share, and wakes the last of as many calls as shares are free: those before it were woken
// when their shares became free. A woken call waits until it takes its share, since others may come before it.
func (s *shares) update(namespace string, change func(*share)) {
	if next, ok := s.next(namespace, change); ok {
		s.wake(next)
	}
}

func (s *shares) next(namespace string, change func(*share)) (next types.NamespacedName, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[namespace]
	if n == nil {
		return next, false
	}
	change(n)
	if n.inUse == 0 && len(n.waiting) == 0 {
		delete(s.namespaces, namespace)
	}
	free := s.each - n.inUse
	if free == 0 || len(n.waiting) < free {
		return next, false
	}
	return n.waiting[free-1], true
}
