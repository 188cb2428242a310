package dispatch

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/fair"
)

// isFree says whether the only slot is.
func isFree(slots *fair.Turns[netip.Addr]) bool {
	release, ok := slots.TryAcquire(addr(99), 1)
	if ok {
		release()
	}
	return ok
}

func TestAConnectionHoldsASlotOnlyWhileItIsWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		slots := fair.NewTurns[netip.Addr](1, 1)
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
		if !isFree(slots) {
			t.Error("it holds a slot while it waits for the peer")
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if isFree(slots) {
			t.Error("it holds no slot while what it read is worked on")
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !isFree(slots) {
			t.Error("it holds a slot while it waits for more")
		}
		far.Close()
		if err := <-read; !errors.Is(err, io.EOF) {
			t.Errorf("at the peer's end: %v", err)
		}
		if c.finish(); !isFree(slots) {
			t.Error("it holds a slot after its end")
		}
	})
}

func TestAConnectionIsFreeOfSlotsOnceItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		slots := fair.NewTurns[netip.Addr](1, 1)
		c := &slottedConn{Conn: near, ctx: t.Context(), slots: slots, source: addr(1)}
		c.finish()
		if _, err := slots.Acquire(t.Context(), addr(2), 1); err != nil {
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
		slots := fair.NewTurns[netip.Addr](1, 1)
		release, err := slots.Acquire(t.Context(), addr(2), 1)
		if err != nil {
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
		if release(); !isFree(slots) {
			t.Error("it holds a slot after its end")
		}
	})
}
