package dispatch

import (
	"context"
	"net"
	"net/netip"

	"toolcall.dev/operator/internal/fair"
)

// slottedConn holds a slot while what was read from it is worked on, and none while it waits for the peer. One
// goroutine uses it until finish.
type slottedConn struct {
	net.Conn
	ctx    context.Context
	slots  *fair.Turns[netip.Addr]
	source netip.Addr
	// giveBack gives its slot back; nil while it holds none.
	giveBack func()
	done     bool
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

func (c *slottedConn) acquire() (err error) {
	c.giveBack, err = c.slots.Acquire(c.ctx, c.source, 1)
	return err
}

// finish gives the slot back for good: the connection needs no more.
func (c *slottedConn) finish() {
	c.release()
	c.done = true
}

func (c *slottedConn) release() {
	if c.giveBack != nil {
		c.giveBack()
		c.giveBack = nil
	}
}
