package dispatch

import (
	"net/netip"
	"slices"
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
// there are too many, one of the source that has most is closed. To find that one takes some microseconds at most: a flood must not
// make it slow.
type unauthenticated struct {
	mu sync.Mutex
	// sources has the connections of each source, the oldest first.
	sources map[netip.Addr][]*candidate
	total   int
}

// candidate is one of the connections.
type candidate struct {
	source netip.Addr
	since  time.Time
	evict  func()
}

func newUnauthenticated() *unauthenticated {
	return &unauthenticated{sources: map[netip.Addr][]*candidate{}}
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
	c := &candidate{source, now, evict}
	u.sources[source] = append(u.sources[source], c)
	u.total++
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
	own := u.sources[source]
	if len(own) >= maxUnauthenticatedPerSource {
		u.evict(own[0])
		return true
	}
	if u.total < maxUnauthenticated {
		return true
	}
	var most []*candidate
	oldest := &candidate{since: now}
	for _, there := range u.sources {
		first := there[0]
		if len(there) > len(most) || len(there) == len(most) && first.since.Before(most[0].since) {
			most = there
		}
		if first.since.Before(oldest.since) {
			oldest = first
		}
	}
	switch {
	case len(most) > len(own)+1:
		u.evict(most[0])
	case now.Sub(oldest.since) >= minUnauthenticated:
		u.evict(oldest)
	default:
		return false
	}
	return true
}

func (u *unauthenticated) evict(c *candidate) {
	u.drop(c)
	c.evict()
}

func (u *unauthenticated) drop(c *candidate) {
	there := u.sources[c.source]
	at := slices.Index(there, c)
	switch {
	case at < 0:
		return
	case len(there) == 1:
		delete(u.sources, c.source)
	default:
		u.sources[c.source] = slices.Delete(there, at, at+1)
	}
	u.total--
}
