package dispatch

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// fairSlots bounds how much of something is done at once. Sources, which are addresses or namespaces, take turns, so that
// what one wants delays what another wants by one at most.
type fairSlots[K comparable] struct {
	mu   sync.Mutex
	free int
	// waiting has the waiters of each source, first come first; turns has the sources that have any, the next one first.
	waiting map[K][]*slotWaiter
	turns   []K
}

// slotWaiter is told by its channel that it has a slot.
type slotWaiter struct {
	granted  chan struct{}
	canceled bool
}

func newFairSlots[K comparable](n int) *fairSlots[K] {
	return &fairSlots[K]{free: n, waiting: map[K][]*slotWaiter{}}
}

// acquire waits for a slot. The caller releases it unless there is an error.
func (f *fairSlots[K]) acquire(ctx context.Context, source K) error {
	f.mu.Lock()
	if f.free > 0 {
		f.free--
		f.mu.Unlock()
		return nil
	}
	w := &slotWaiter{granted: make(chan struct{})}
	if len(f.waiting[source]) == 0 {
		f.turns = append(f.turns, source)
	}
	f.waiting[source] = append(f.waiting[source], w)
	f.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.canceled = true
	select {
	case <-w.granted:
		f.pass()
	default:
	}
	return ctx.Err()
}

// release gives the slot to the next source's first waiter.
func (f *fairSlots[K]) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pass()
}

// pass needs the lock.
func (f *fairSlots[K]) pass() {
	for len(f.turns) > 0 {
		source := f.turns[0]
		f.turns = f.turns[1:]
		w := f.next(source)
		if len(f.waiting[source]) > 0 {
			f.turns = append(f.turns, source)
		}
		if w != nil {
			close(w.granted)
			return
		}
	}
	f.free++
}

// next takes the first waiter of a source that still waits, or nil.
func (f *fairSlots[K]) next(source K) *slotWaiter {
	queue := f.waiting[source]
	var found *slotWaiter
	for len(queue) > 0 && found == nil {
		if !queue[0].canceled {
			found = queue[0]
		}
		queue = queue[1:]
	}
	f.waiting[source] = queue
	if len(queue) == 0 {
		delete(f.waiting, source)
	}
	return found
}

// slottedConn holds a slot while what was read from it is worked on, and none while it waits for the peer. One
// goroutine uses it until finish.
type slottedConn struct {
	net.Conn
	ctx    context.Context
	slots  *fairSlots[netip.Addr]
	source netip.Addr
	holds  bool
	done   bool
}

// Read waits for the peer without a slot, and returns with one.
func (c *slottedConn) Read(p []byte) (int, error) {
	if c.done {
		return c.Conn.Read(p)
	}
	c.release()
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	return n, c.acquire()
}

// Write is like Read.
func (c *slottedConn) Write(p []byte) (int, error) {
	if c.done {
		return c.Conn.Write(p)
	}
	c.release()
	n, err := c.Conn.Write(p)
	if err != nil {
		return n, err
	}
	return n, c.acquire()
}

func (c *slottedConn) acquire() error {
	if err := c.slots.acquire(c.ctx, c.source); err != nil {
		return err
	}
	c.holds = true
	return nil
}

// finish gives the slot back for good: the connection needs no more.
func (c *slottedConn) finish() {
	c.release()
	c.done = true
}

func (c *slottedConn) release() {
	if c.holds {
		c.holds = false
		c.slots.release()
	}
}
