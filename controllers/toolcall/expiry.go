package toolcall

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Expiry remembers when finished calls are to be looked at again. There may be very many of them, for hours: an
// entry takes a few dozen bytes here, and a few hundred as a timer of the reconciler's queue. It is made again by
// looking at every call, as the reconciler does when it starts.
type Expiry struct {
	clock clock.PassiveClock
	wake  func(types.NamespacedName)

	mu sync.Mutex
	// due has the calls of each second, by the second since 1970.
	due map[int64]map[types.NamespacedName]struct{}
	// seconds is a heap of the keys of due.
	seconds seconds
}

// NewExpiry makes an empty one that calls wake for calls whose time has come.
func NewExpiry(clock clock.PassiveClock, wake func(types.NamespacedName)) *Expiry {
	return &Expiry{clock: clock, wake: wake, due: map[int64]map[types.NamespacedName]struct{}{}}
}

// Add has a call looked at again at a time, within a second after it.
func (e *Expiry) Add(call types.NamespacedName, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	second := at.Unix() + 1
	if e.due[second] == nil {
		heap.Push(&e.seconds, second)
		e.due[second] = map[types.NamespacedName]struct{}{}
	}
	// Decoding makes a copy of the namespace for each call.
	call.Namespace = unique.Make(call.Namespace).Value()
	e.due[second][call] = struct{}{}
}

// Remove forgets a call that was to be looked at again at a time.
func (e *Expiry) Remove(call types.NamespacedName, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.due[at.Unix()+1], call)
}

// Now has a call looked at at once. It doesn't wait for all others of its second, which would hold up new calls together.
func (e *Expiry) Now(call types.NamespacedName) { e.wake(call) }

// Start wakes calls until the context ends.
func (e *Expiry) Start(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			for _, call := range e.take(e.clock.Now()) {
				e.wake(call)
			}
		}
	}
}

// take removes the calls whose time has come.
func (e *Expiry) take(now time.Time) []types.NamespacedName {
	e.mu.Lock()
	defer e.mu.Unlock()
	var calls []types.NamespacedName
	for len(e.seconds) > 0 && e.seconds[0] <= now.Unix() {
		second := heap.Pop(&e.seconds).(int64)
		calls = slices.AppendSeq(calls, maps.Keys(e.due[second]))
		delete(e.due, second)
	}
	return calls
}

// seconds implements heap.Interface.
type seconds []int64

func (s seconds) Len() int           { return len(s) }
func (s seconds) Less(i, j int) bool { return s[i] < s[j] }
func (s seconds) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push adds to the end.
func (s *seconds) Push(x any) { *s = append(*s, x.(int64)) }

// Pop takes from the end.
func (s *seconds) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
