package dispatch

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// turns has goroutines that wait for a slot and say when they have it.
type turns struct {
	t     *testing.T
	slots *fairSlots[netip.Addr]
	got   []string
	done  chan struct{}
}

// wait starts a goroutine that waits for its turn; it has joined the queue when wait returns.
func (q *turns) wait(ctx context.Context, source int, name string) {
	go func() {
		if q.slots.acquire(ctx, addr(source)) == nil {
			q.got = append(q.got, name)
			q.slots.release()
		}
		q.done <- struct{}{}
	}()
	synctest.Wait()
}

func TestSourcesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &turns{t: t, slots: newFairSlots[netip.Addr](1), done: make(chan struct{}, 100)}
		if err := q.slots.acquire(t.Context(), addr(0)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			q.wait(t.Context(), 1, name)
		}
		q.wait(t.Context(), 2, "b1")
		q.wait(t.Context(), 3, "c1")
		q.wait(t.Context(), 2, "b2")
		q.slots.release()
		synctest.Wait()
		if want := []string{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}; !slices.Equal(q.got, want) {
			t.Errorf("got turns in the order %v, want %v", q.got, want)
		}
		if q.slots.free != 1 || len(q.slots.waiting) != 0 || len(q.slots.turns) != 0 {
			t.Errorf("left behind: %+v", q.slots)
		}
	})
}

func TestWhoStopsWaitingIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &turns{t: t, slots: newFairSlots[netip.Addr](1), done: make(chan struct{}, 100)}
		if err := q.slots.acquire(t.Context(), addr(0)); err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		q.wait(gone, 1, "gone")
		q.wait(t.Context(), 1, "stays")
		q.wait(gone, 2, "gone too")
		q.wait(t.Context(), 3, "stays too")
		leave()
		synctest.Wait()
		if len(q.done) != 2 {
			t.Errorf("%d of 2 have stopped waiting", len(q.done))
		}
		q.slots.release()
		synctest.Wait()
		if want := []string{"stays", "stays too"}; !slices.Equal(q.got, want) {
			t.Errorf("got turns in the order %v, want %v", q.got, want)
		}
		if q.slots.free != 1 || len(q.slots.waiting) != 0 || len(q.slots.turns) != 0 {
			t.Errorf("left behind: %+v", q.slots)
		}
	})
}

func TestNoMoreSlotsAreHeldThanThereAre(t *testing.T) {
	t.Parallel()
	const n = 3
	slots := newFairSlots[netip.Addr](n)
	var held, most atomic.Int32
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%5 == 0 {
				// Races with being granted a slot.
				go cancel()
			}
			if slots.acquire(ctx, addr(i%7)) != nil {
				return
			}
			for now := held.Add(1); ; {
				if seen := most.Load(); now <= seen || most.CompareAndSwap(seen, now) {
					break
				}
			}
			held.Add(-1)
			slots.release()
		})
	}
	all.Wait()
	if most.Load() > n || slots.free != n || len(slots.waiting) != 0 {
		t.Errorf("%d were held at once; %d are free; %d sources wait", most.Load(), slots.free, len(slots.waiting))
	}
}

func TestAConnectionHoldsASlotOnlyWhileItIsWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		slots := newFairSlots[netip.Addr](1)
		c := &slottedConn{Conn: near, ctx: t.Context(), slots: slots, source: addr(1)}
		read := make(chan error)
		go func() {
			for {
				_, err := c.Read(make([]byte, 1))
				read <- err
				if err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if slots.free != 1 {
			t.Error("it holds a slot while it waits for the peer")
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if slots.free != 0 {
			t.Error("it holds no slot while what it read is worked on")
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if slots.free != 1 {
			t.Error("it holds a slot while it waits for more")
		}
		far.Close()
		if err := <-read; !errors.Is(err, io.EOF) {
			t.Errorf("at the peer's end: %v", err)
		}
		if c.finish(); slots.free != 1 {
			t.Error("it holds a slot after its end")
		}
	})
}

func TestAConnectionIsFreeOfSlotsOnceItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		slots := newFairSlots[netip.Addr](1)
		c := &slottedConn{Conn: near, ctx: t.Context(), slots: slots, source: addr(1)}
		c.finish()
		if err := slots.acquire(t.Context(), addr(2)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = far.Write([]byte("x")); _, _ = far.Read(make([]byte, 1)) }()
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if _, err := c.Write([]byte("y")); err != nil {
			t.Error(err)
		}
	})
}

func TestAConnectionThatWaitsForASlotEndsWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		slots := newFairSlots[netip.Addr](1)
		if err := slots.acquire(t.Context(), addr(2)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := &slottedConn{Conn: near, ctx: ctx, slots: slots, source: addr(1)}
		go func() { _, _ = far.Write([]byte("x")) }()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		c.finish()
		if slots.release(); slots.free != 1 {
			t.Errorf("%d slots are free", slots.free)
		}
	})
}
