package toolcall

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// shares bounds how many calls of one namespace create their Jobs at the same time: a slow admission webhook of one
// namespace then keeps only a part of the workers, and never those that write results. Calls that find no share wait in
// order, and are woken one for each share that is given back.
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
	return func() { s.release(call.Namespace) }, true
}

func (s *shares) release(namespace string) {
	if next, ok := s.giveBack(namespace); ok {
		s.wake(next)
	}
}

// giveBack returns the call that waits the longest.
func (s *shares) giveBack(namespace string) (next types.NamespacedName, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[namespace]
	n.inUse--
	if len(n.waiting) > 0 {
		next, n.waiting = n.waiting[0], n.waiting[1:]
		return next, true
	}
	if n.inUse == 0 {
		delete(s.namespaces, namespace)
	}
	return next, false
}
