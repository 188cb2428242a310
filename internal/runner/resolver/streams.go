package resolver

import (
	"context"
	"net"
	"slices"
	"sync"
)

// streams bounds how many streams are open at once. Where there is no place for another one, an idle one is closed.
type streams struct {
	places chan struct{}

	mu sync.Mutex
	// idle are the streams that wait for another query, the longest first; waiting is how many acquire for a new one.
	idle    []*stream
	waiting int
}

func newStreams() *streams { return &streams{places: make(chan struct{}, maxStreams)} }

// acquire waits for a place. It is false when the context ends.
func (s *streams) acquire(ctx context.Context) bool {
	select {
	case s.places <- struct{}{}:
		return ctx.Err() == nil
	default:
	}
	s.wait()
	defer s.endWait()
	select {
	case s.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *streams) release() { <-s.places }

// wait closes the stream that is idle for the longest. If there is none, the next one that becomes idle is.
func (s *streams) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	if len(s.idle) > 0 {
		s.closeIdle(s.idle[0])
	}
}

func (s *streams) endWait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

// begin counts a query that arrives on a stream.
func (s *streams) begin(of *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.pending++
	s.remove(of)
}

// end counts a query that was answered. A stream without any is idle.
func (s *streams) end(of *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.pending--; of.pending > 0 || of.ended {
		return
	}
	s.idle = append(s.idle, of)
	if s.waiting > 0 {
		s.closeIdle(s.idle[0])
	}
}

// leave forgets a stream that ends.
func (s *streams) leave(of *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.ended = true
	s.remove(of)
}

func (s *streams) closeIdle(one *stream) {
	one.ended = true
	s.remove(one)
	_ = one.conn.Close()
}

func (s *streams) remove(of *stream) {
	if i := slices.Index(s.idle, of); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// stream is a client's stream.
type stream struct {
	resolver *Resolver
	conn     net.Conn
	slots    chan struct{}
	queries  sync.WaitGroup
	// writing is held while an answer is written.
	writing chan struct{}

	// pending are the queries that arrive or are answered. ended says that the stream won't be idle again. Both belong to
	// streams.
	pending int
	ended   bool
}
