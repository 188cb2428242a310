package fair

import (
	"container/list"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Shares bounds how many objects of one namespace a controller's workers do something for at the same time: a slow admission webhook
// of one namespace then keeps only a part of them. Objects that find no share wait in order and keep no worker; they are woken when a
// share is free.
type Shares struct {
	each int
	wake func(types.NamespacedName)

	mu         sync.Mutex
	namespaces map[string]*namespaceShare
}

// namespaceShare has the objects that wait, and where in the line each of them is.
type namespaceShare struct {
	inUse   int
	waiting list.List
	places  map[types.NamespacedName]*list.Element
}

// NewShares makes one of how many shares a namespace has; wake has an object looked at.
func NewShares(each int, wake func(types.NamespacedName)) *Shares {
	return &Shares{each: each, wake: wake, namespaces: map[string]*namespaceShare{}}
}

// Acquire takes a share, if there is one, or has the object woken when there is. The caller calls release when it is done.
func (s *Shares) Acquire(object types.NamespacedName) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[object.Namespace]
	if n == nil {
		n = &namespaceShare{places: map[types.NamespacedName]*list.Element{}}
		s.namespaces[object.Namespace] = n
	}
	if n.inUse >= s.each {
		if n.places[object] == nil {
			n.places[object] = n.waiting.PushBack(object)
		}
		return nil, false
	}
	n.inUse++
	n.leave(object)
	return func() { s.update(object.Namespace, func(n *namespaceShare) { n.inUse-- }) }, true
}

// Forget drops an object that doesn't wait any more.
func (s *Shares) Forget(object types.NamespacedName) {
	s.update(object.Namespace, func(n *namespaceShare) { n.leave(object) })
}

// leave needs the lock.
func (n *namespaceShare) leave(object types.NamespacedName) {
	if place := n.places[object]; place != nil {
		n.waiting.Remove(place)
		delete(n.places, object)
	}
}

// update changes a namespace's shares. With n shares free it wakes the n-th object that waits: those before it were woken when the other
// shares became free. A woken object keeps its place until it takes a share, because another object may take that first.
func (s *Shares) update(namespace string, change func(*namespaceShare)) {
	if next, ok := s.next(namespace, change); ok {
		s.wake(next)
	}
}

func (s *Shares) next(namespace string, change func(*namespaceShare)) (next types.NamespacedName, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[namespace]
	if n == nil {
		return next, false
	}
	change(n)
	if n.inUse == 0 && n.waiting.Len() == 0 {
		delete(s.namespaces, namespace)
	}
	free := s.each - n.inUse
	if free == 0 || n.waiting.Len() < free {
		return next, false
	}
	place := n.waiting.Front()
	for range free - 1 {
		place = place.Next()
	}
	next, ok = place.Value.(types.NamespacedName)
	return next, ok
}
