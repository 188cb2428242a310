package dispatch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"toolcall.dev/operator/internal/dispatch/wire"
)

const (
	// idleTimeout is how long a runner may say nothing. It pings every wire.PingInterval.
	idleTimeout = 15 * wire.PingInterval
	// resultGrace is how long a large result may take to begin once there is room for it, and minResultRate how many bytes
	// of it must arrive in each second after that.
	resultGrace   = 5 * time.Second
	minResultRate = 128 << 10
	// A runner pings every wire.PingInterval, also while its result waits for room. More often than this, it only costs time.
	pingsPerSecond, pingBurst = 1, 600
)

// connection is a known runner's end of the line.
type connection struct {
	*Runner
	conn *tls.Conn
	// pings bounds what a runner may say for no purpose.
	pings *rate.Limiter
	// isListing says that the calls come that the runner has: each as large as a decision can be.
	isListing bool
	// ctx ends when the connection is closed.
	ctx context.Context
}

// newConnection makes the Runner of one that said hello. abort closes the connection at once.
func (a *acceptor) newConnection(ctx context.Context, conn *tls.Conn, hello *wire.Hello, abort func()) *connection {
	ctx, cancel := context.WithCancel(ctx)
	s := &Runner{
		hello: *hello, keyHash: keyHash(conn), hub: a.Hub, results: a.results, outbox: &outbox{conn: conn, abort: abort}, cancel: cancel,
		gone: make(chan struct{}),
	}
	s.send, s.outbox.drained = s.outbox.send, s.noticeRoom
	s.reads, s.transfers = newReads(s), newTransfers(s)
	s.hello.Token = ""
	if serving := hello.Serving; serving != nil {
		s.served = newServed(serving.Owner, a.Hub.Clock.Now())
		s.served.taken = serving.Taken
	}
	return &connection{Runner: s, conn: conn, ctx: ctx, pings: rate.NewLimiter(pingsPerSecond, pingBurst)}
}

// turnAway says why the runner isn't served. A refusal that isn't final lets a runner that has begun keep what it has, and dial
// again.
func (c *connection) turnAway(reason error) {
	_ = c.send(&wire.Message{Refuse: &wire.Refusal{Reason: reason.Error(), Final: isFinal(reason)}})
	c.close()
}

// end lets what is queued leave, unless the peer has ended the connection, or has caused its end: then nobody waits for that peer.
func (c *connection) end() {
	if c.ctx.Err() == nil {
		c.outbox.giveUp()
	}
	c.outbox.flush()
	c.cancel()
	c.outbox.forget()
}

// receive takes the runner's messages until the connection ends, and says why it did.
func (c *connection) receive() error {
	stop := context.AfterFunc(c.ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		m, release, err := c.next()
		if err != nil {
			return err
		}
		switch {
		case m.Ping != nil:
			err = c.pong()
		case m.Data != nil:
			err = c.reads.take(m.Data)
		case m.Part != nil:
			err = c.transfers.takePart(m.Part)
		case m.State != nil:
			err = c.transfers.takeState(m.State)
		case c.IsWaiting():
			release()
			err = errNotSent
		default:
			err = c.takeServed(m, release)
		}
		if err != nil {
			return err
		}
	}
}

var (
	errNotSent = errors.New("a message that a runner doesn't send")
	errPings   = errors.New("the runner pings too often")
)

func (c *connection) pong() error {
	if !c.pings.Allow() {
		return errPings
	}
	c.outbox.sendPong()
	return nil
}

// next receives one message. release gives back what it takes of the budget; it is never nil when there is a message.
func (c *connection) next() (m *wire.Message, release func(), err error) {
	if err := c.setReadDeadline(idleTimeout); err != nil {
		return nil, nil, err
	}
	read := wire.ReadFromRunner
	size, err := wire.ReadHeader(c.conn, wire.MaxResult)
	switch {
	case err != nil:
		return nil, nil, err
	case size <= wire.MaxControl:
	case size <= c.maxAsked():
		// Who asked has room for it.
		read = wire.ReadAskedFromRunner
	case size <= c.maxUnasked():
		return c.readLarge(size)
	default:
		return nil, nil, fmt.Errorf("%w: %d bytes, at most %d without a call to report", wire.ErrTooLarge, size, wire.MaxControl)
	}
	m, err = read(c.conn, size)
	switch {
	case err == nil && size > wire.MaxControl && m.Result == nil && !isAsked(m):
		return nil, nil, errLarge
	case err != nil || m.Result == nil:
		return m, func() {}, err
	}
	defer c.sendPongs()()
	release, err = c.results.acquire(c.ctx, c.hello.Namespace, size)
	return m, release, err
}

// maxAsked bounds a frame that the operator has asked for; 0 when it waits for none.
func (c *connection) maxAsked() int {
	switch {
	case c.transfers.areOpen():
		return wire.MaxPartFrame
	case c.reads.areAsked():
		return wire.MaxData
	default:
		return 0
	}
}

// maxUnasked bounds a frame that the operator hasn't asked for.
func (c *connection) maxUnasked() int {
	switch {
	case c.isListing:
		return wire.MaxHeld
	case inServed(c.Runner, (*served).mayReport):
		return wire.MaxResult
	default:
		return wire.MaxControl
	}
}

// isAsked says that a message comes only when it was asked for.
func isAsked(m *wire.Message) bool { return m.Data != nil || m.Part != nil || m.State != nil }

var errLarge = errors.New("a message is larger than its kind allows")

// readLarge receives what is larger than a control message can be. It waits for room in the budget before it reads the body of the frame.
func (c *connection) readLarge(size int) (*wire.Message, func(), error) {
	defer c.sendPongs()()
	release, err := c.results.acquire(c.ctx, c.hello.Namespace, size)
	if err != nil {
		return nil, nil, err
	}
	m, err := wire.ReadFromRunner(&steadyReader{connection: c, began: time.Now()}, size)
	if err == nil && m.Result == nil && m.Held == nil {
		err = errLarge
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return m, release, nil
}

// steadyReader reads from a runner, and fails when the bytes come more slowly than minResultRate: they take their room
// from others.
type steadyReader struct {
	*connection
	began time.Time
	got   int
}

// Read implements io.Reader.
func (r *steadyReader) Read(p []byte) (int, error) {
	allowed := resultGrace + time.Duration(r.got)*time.Second/minResultRate
	if err := r.setReadDeadline(time.Until(r.began.Add(allowed))); err != nil {
		return 0, err
	}
	n, err := r.conn.Read(p)
	r.got += n
	return n, err
}

// sendPongs lets a runner wait: its own pings wait behind its result, and it would take the operator for dead. It sends
// a Pong every wire.PingInterval until stop is called.
func (c *connection) sendPongs() (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	var ponging sync.WaitGroup
	ponging.Go(func() {
		tick := time.NewTicker(wire.PingInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.outbox.sendPong()
			}
		}
	})
	return func() { cancel(); ponging.Wait() }
}

// setReadDeadline fails when the connection is closed, whose end has set another deadline.
func (c *connection) setReadDeadline(d time.Duration) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		return net.ErrClosed
	}
	return nil
}
