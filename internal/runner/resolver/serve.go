package resolver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// idleTimeout bounds the time between two queries on a stream, messageTimeout that for one message in or out, and for the
	// first one to start.
	idleTimeout    = 30 * time.Second
	messageTimeout = 5 * time.Second
	// acceptPause is the time until the next try where the system has no room for a connection.
	acceptPause = 50 * time.Millisecond
)

// Serve answers the streams that a listener accepts, until it or the resolver is closed. It closes the listener. Beyond
// maxStreams, a new one waits until one ends, and more of them in the listener's backlog; idle ones are closed for it.
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
	if !r.streams.acquire(r.ctx) {
		_ = conn.Close()
		return
	}
	if !r.begin() {
		r.streams.release()
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

// serveStream answers the queries of a stream, in any order, until it ends, and closes it. The stream has a place, and begin
// counted it.
func (r *Resolver) serveStream(conn net.Conn) {
	defer r.tasks.Done()
	defer r.streams.release()
	defer conn.Close()
	stop := context.AfterFunc(r.ctx, func() { _ = conn.Close() })
	defer stop()
	s := stream{resolver: r, conn: conn, slots: make(chan struct{}, maxStreamQueries), writing: make(chan struct{}, 1)}
	defer r.streams.leave(&s)
	s.serve()
}

func (s *stream) serve() {
	defer s.queries.Wait()
	// A client that connects has something to ask.
	idle := messageTimeout
	for {
		msg, err := s.next(idle)
		if err != nil {
			return
		}
		idle = idleTimeout
		if !s.resolver.acquire(s.slots) {
			return
		}
		s.queries.Go(func() {
			defer s.resolver.streams.end(s)
			defer func() { <-s.slots }()
			s.respond(msg)
		})
	}
}

// next reads a query. A message that is longer than any query ends the stream: who sends it means something else.
func (s *stream) next(idle time.Duration) ([]byte, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(idle)); err != nil {
		return nil, err
	}
	var first [1]byte
	if _, err := io.ReadFull(s.conn, first[:]); err != nil {
		return nil, err
	}
	s.resolver.streams.begin(s)
	if err := s.conn.SetReadDeadline(time.Now().Add(messageTimeout)); err != nil {
		return nil, err
	}
	return readMessage(io.MultiReader(bytes.NewReader(first[:]), s.conn), MaxQuery)
}

func (s *stream) respond(msg []byte) {
	if !s.resolver.acquire(s.resolver.queries) {
		return
	}
	answer := s.resolver.answer(s.resolver.ctx, msg)
	<-s.resolver.queries
	if answer == nil {
		_ = s.conn.Close()
		return
	}
	if !s.resolver.acquire(s.writing) {
		return
	}
	defer func() { <-s.writing }()
	err := s.conn.SetWriteDeadline(time.Now().Add(messageTimeout))
	if err == nil {
		err = writeMessage(s.conn, answer.pack(maxStreamMessage))
	}
	if err != nil {
		_ = s.conn.Close()
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
// until reply returns. An answer is never given after Close returned.
func (r *Resolver) Datagram(msg []byte, reply func([]byte)) {
	if len(msg) > MaxQuery || !r.begin() {
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
	msg = append([]byte(nil), msg...)
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

// readMessage reads a message with its length before it.
func readMessage(from io.Reader, limit int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n < headerSize || n > limit {
		return nil, fmt.Errorf("a message of %d bytes: send %d to %d", n, headerSize, limit)
	}
	msg := make([]byte, n)
	_, err := io.ReadFull(from, msg)
	return msg, err
}

// writeMessage writes a message with its length before it, at once: some read both with one call.
func writeMessage(to io.Writer, msg []byte) error {
	if len(msg) < headerSize || len(msg) > maxStreamMessage {
		return fmt.Errorf("a message of %d bytes can't be written", len(msg))
	}
	_, err := to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err
}
