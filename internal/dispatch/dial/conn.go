package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Conn is one connection. Send may be called from any goroutine, Receive from one at a time. Somebody must call
// Receive all the time: it is what notices that the operator is gone.
type Conn struct {
	conn *tls.Conn
	// writing has room for the one that writes, who has frame: the memory of the last frame.
	writing chan struct{}
	frame   []byte
	// closed ends with the connection; stop ends it.
	closed context.Context
	stop   context.CancelFunc
}

// newConn pings until the context ends or the connection is closed.
func newConn(ctx context.Context, connected *tls.Conn) *Conn {
	c := &Conn{conn: connected, writing: make(chan struct{}, 1)}
	c.closed, c.stop = context.WithCancel(ctx)
	go c.ping()
	return c
}

// ping keeps the operator answering, so that a connection whose other end vanished is noticed.
func (c *Conn) ping() {
	defer c.Close()
	tick := time.NewTicker(wire.PingInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.closed.Done():
			return
		case <-tick.C:
			if c.Send(&wire.Message{Ping: &wire.Ping{}}) != nil {
				return
			}
		}
	}
}

// Send writes one message. It has no deadline of its own: an operator that has no room for a result yet lets the
// runner wait, and says that it is alive meanwhile. Close ends the wait.
func (c *Conn) Send(m *wire.Message) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
		return c.write(m)
	case <-c.closed.Done():
		return net.ErrClosed
	}
}

// maxKept bounds the memory that is kept for frames: that of a part of a file, of which there are many.
const maxKept = 2 * wire.MaxPartFrame

func (c *Conn) write(m *wire.Message) error {
	frame, err := wire.EncodeInto(c.frame, m)
	if err != nil {
		return err
	}
	if cap(frame) <= maxKept {
		c.frame = frame
	}
	batching, ok := c.conn.NetConn().(*batchingConn)
	if !ok || len(frame) <= wire.MaxData {
		_, err = c.conn.Write(frame)
		return err
	}
	batching.begin()
	_, err = c.conn.Write(frame)
	return errors.Join(err, batching.end())
}

// Receive waits for the next message. It skips Pongs and what this version doesn't know. It fails, and closes the
// connection, when the operator has been silent too long.
func (c *Conn) Receive() (*wire.Message, error) {
	for {
		m, err := c.read()
		switch {
		case errors.Is(err, wire.ErrUnknownMessage):
		case err != nil:
			c.Close()
			return nil, err
		case m.Pong == nil:
			return m, nil
		}
	}
}

func (c *Conn) read() (*wire.Message, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(wire.SilenceTimeout)); err != nil {
		return nil, err
	}
	return wire.Read(c.conn, wire.MaxAssignment)
}

// Close ends the connection. It doesn't wait for the operator.
func (c *Conn) Close() {
	c.stop()
	c.conn.NetConn().Close()
}
