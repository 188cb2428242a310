package dispatch

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Bounds of the connections whose peer hasn't said who it is.
const (
	maxUnauthenticated          = 1024
	maxUnauthenticatedPerSource = 128
	// minUnauthenticated is how long a connection of a modest source is left alone.
	minUnauthenticated = time.Second
)

// unauthenticated holds the connections whose peer hasn't said who it is. A newcomer doesn't wait behind them: when
// there are too many, one of the source that has most is closed. Each method takes a time that doesn't depend on how
// many there are: a flood must not make it slow.
type unauthenticated struct {
	mu      sync.Mutex
	sources map[netip.Addr]*visitors
	// byAge has all candidates, the oldest first.
	byAge list.List
	// bySize has the sources with that many candidates, the one that has had as many for longest first.
	bySize  [maxUnauthenticatedPerSource + 1]list.List
	largest int
}

// visitors are the connections of one source.
type visitors struct {
	addr netip.Addr
	// byAge has the source's candidates, the oldest first.
	byAge list.List
	// size is the list of bySize that the source is in, inSize its place there.
	size   int
	inSize *list.Element
}

// candidate is one of the connections.
type candidate struct {
	source           *visitors
	since            time.Time
	evict            func()
	inAll, ofVisitor *list.Element
}

func newUnauthenticated() *unauthenticated {
	return &unauthenticated{sources: map[netip.Addr]*visitors{}}
}

// add makes room for a connection and registers it. evict must close the connection without blocking. The result is
// nil when there is no room: every source has about as few connections as this one, and all of them are new. Closing
// one of those for a newcomer would keep all of them from ever completing, as when all runners come back at once.
func (u *unauthenticated) add(source netip.Addr, now time.Time, evict func()) *candidate {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.makeRoom(source, now) {
		return nil
	}
	own := u.sources[source]
	if own == nil {
		own = &visitors{addr: source}
		u.sources[source] = own
	}
	c := &candidate{source: own, since: now, evict: evict}
	c.inAll, c.ofVisitor = u.byAge.PushBack(c), own.byAge.PushBack(c)
	u.resized(own)
	return c
}

// remove forgets a connection. Doing it twice is fine.
func (u *unauthenticated) remove(c *candidate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(c)
}

// The rest needs the lock.

func (u *unauthenticated) makeRoom(source netip.Addr, now time.Time) bool {
	own := 0
	if s := u.sources[source]; s != nil {
		own = s.byAge.Len()
	}
	switch {
	case own >= maxUnauthenticatedPerSource:
		u.evict(oldest(&u.sources[source].byAge))
	case u.byAge.Len() < maxUnauthenticated:
	case u.largest > own+1:
		u.evict(oldest(&u.bySize[u.largest].Front().Value.(*visitors).byAge))
	case now.Sub(oldest(&u.byAge).since) >= minUnauthenticated:
		u.evict(oldest(&u.byAge))
	default:
		return false
	}
	return true
}

func oldest(candidates *list.List) *candidate { return candidates.Front().Value.(*candidate) }

func (u *unauthenticated) evict(c *candidate) {
	u.drop(c)
	c.evict()
}

func (u *unauthenticated) drop(c *candidate) {
	if c.inAll == nil {
		return
	}
	u.byAge.Remove(c.inAll)
	c.source.byAge.Remove(c.ofVisitor)
	c.inAll = nil
	u.resized(c.source)
}

// resized puts a source into the list of its size.
func (u *unauthenticated) resized(s *visitors) {
	if s.size > 0 {
		u.bySize[s.size].Remove(s.inSize)
	}
	s.size = s.byAge.Len()
	if s.size > 0 {
		s.inSize = u.bySize[s.size].PushBack(s)
	} else {
		delete(u.sources, s.addr)
	}
	u.largest = max(u.largest, s.size)
	for u.largest > 0 && u.bySize[u.largest].Len() == 0 {
		u.largest--
	}
}
