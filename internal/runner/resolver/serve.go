package resolver

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	// messageTimeout bounds the time for one message out, and until the next one is in.
	messageTimeout = 5 * time.Second
	// acceptPause is the time until the next try where the system has no room for a connection.
	acceptPause = 50 * time.Millisecond
)

// Serve answers the streams that a listener accepts, until it or the resolver is closed. It closes the listener. Beyond
// maxStreams, a new one waits until one ends, and more of them in the listener's backlog.
func (r *Resolver) Serve(l net.Listener) {
	defer l.Close()
	if !r.begin() {
		return
	}
	defer r.tasks.Done()
	stop := context.AfterFunc(r.ctx, func() { _ = l.Close() })
	defer stop()
	for r.ctx.Err() == nil {
		conn, err := l.Accept()
		switch {
		case err == nil:
			r.admit(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			pause(r.ctx, acceptPause)
		}
	}
}

// admit serves a stream once there is a place for it.
func (r *Resolver) admit(conn net.Conn) {
	if !r.acquire(r.streams) {
		_ = conn.Close()
		return
	}
	if !r.begin() {
		<-r.streams
		_ = conn.Close()
		return
	}
	go r.serveStream(conn)
}

// pause waits until the time or the context is over.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// acquire takes a slot. It is false after Close.
func (r *Resolver) acquire(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return r.ctx.Err() == nil
	case <-r.ctx.Done():
		return false
	}
}

// Datagram answers a query that came as a datagram. It doesn't wait. It calls reply exactly once, with nil where there is no
// answer: for what isn't a query, when too many are under way, and once the resolver is closed. A query counts as under way
// until reply returns, and must not change until then. An answer is never given after Close returned.
func (r *Resolver) Datagram(msg []byte, reply func([]byte)) {
	if !r.begin() {
		reply(nil)
		return
	}
	select {
	case r.queries <- struct{}{}:
	default:
		r.tasks.Done()
		reply(nil)
		return
	}
	go func() {
		defer r.tasks.Done()
		defer func() { <-r.queries }()
		reply(r.datagramAnswer(msg))
	}()
}

// datagramAnswer is nil where there is no answer.
func (r *Resolver) datagramAnswer(msg []byte) []byte {
	answer := r.answer(r.ctx, msg)
	if answer == nil || r.ctx.Err() != nil {
		return nil
	}
	return answer.pack(answer.query.datagram)
}
