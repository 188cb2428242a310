package resolver

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// stream is a client's stream.
type stream struct {
	resolver *Resolver
	conn     net.Conn
	queries  sync.WaitGroup
	// writing is held while an answer is written.
	writing chan struct{}
}

// serveStream answers the queries of a stream, in any order, until it ends, and closes it. The stream has a place, and begin
// counted it.
func (r *Resolver) serveStream(conn net.Conn) {
	defer r.tasks.Done()
	defer func() { <-r.streams }()
	defer conn.Close()
	stop := context.AfterFunc(r.ctx, func() { _ = conn.Close() })
	defer stop()
	s := stream{resolver: r, conn: conn, writing: make(chan struct{}, 1)}
	s.serve()
}

func (s *stream) serve() {
	defer s.queries.Wait()
	for {
		msg, err := s.next()
		if err != nil || !s.resolver.acquire(s.resolver.queries) {
			return
		}
		s.queries.Go(func() {
			defer func() { <-s.resolver.queries }()
			s.respond(msg)
		})
	}
}

// next reads a query. A message that is longer than any query ends the stream: who sends it means something else.
func (s *stream) next() ([]byte, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(messageTimeout)); err != nil {
		return nil, err
	}
	return readMessage(s.conn, MaxQuery)
}

func (s *stream) respond(msg []byte) {
	answer := s.resolver.answer(s.resolver.ctx, msg)
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
