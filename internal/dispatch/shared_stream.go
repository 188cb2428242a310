package dispatch

import (
	"context"
	"errors"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
)

const (
	// fetchSize is how much is asked of a runner at a time: at most what one reader may take in memory, with what it shares.
	fetchSize = 32 << 10
	// sharedWindow is how much of a stream's newest bytes its readers share.
	sharedWindow = 64 << 10
	// answerTimeout is how long a runner may take to say what it has. A Read that follows has no limit: a process may be silent
	// for as long as it likes.
	answerTimeout = 30 * time.Second
)

// errSilent says that a runner pings, and doesn't answer.
var errSilent = errors.New("the runner doesn't answer in time")

// sharedStream is a stream that somebody reads, and what each of its readers has of it. A reader closes it once.
type sharedStream struct {
	// source has the lock that everything here needs, but for the source itself and the key.
	source *RunnerSource
	sharedKey
	readers int
	info    output.Info
	// window has the newest bytes that came, from start on.
	window  []byte
	start   int64
	flights map[flightKey]*flight
}

// flightKey says what a flight asks for.
type flightKey struct {
	offset int64
	follow bool
	// isQuestion says that only what is known of the stream is asked for.
	isQuestion bool
}

// flight is a Read that is under way, and all who wait for it.
type flight struct {
	part
	err    error
	done   chan struct{}
	users  int
	cancel context.CancelFunc
}

// Info implements output.Reader.
func (s *sharedStream) Info() output.Info {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	return s.info
}

// Close implements output.Reader.
func (s *sharedStream) Close() {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if s.readers--; s.readers == 0 {
		delete(s.source.streams, s.sharedKey)
	}
}

// readKnown reads what needs no question. It returns nothing when it does.
func (s *sharedStream) readKnown(p []byte, offset int64) (int, error) {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if at := offset - s.start; at >= 0 && at < int64(len(s.window)) {
		return copy(p, s.window[at:]), nil
	}
	if s.info.Complete || s.flights[flightKey{offset: offset, follow: true}] != nil {
		return 0, errorAt(s.info, offset)
	}
	return 0, nil
}

// fetch asks the runner, together with all who ask for the same meanwhile. It is given up when nobody waits any more.
func (s *sharedStream) fetch(ctx context.Context, key flightKey) (part, error) {
	if err := ctx.Err(); err != nil {
		return part{}, err
	}
	s.source.mu.Lock()
	f := s.flights[key]
	if f == nil {
		f = s.launch(key)
	}
	f.users++
	s.source.mu.Unlock()
	select {
	case <-f.done:
		return f.part, f.err
	case <-ctx.Done():
	}
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if f.users--; f.users == 0 {
		f.cancel()
		s.land(key, f)
	}
	return part{}, ctx.Err()
}

// launch needs the lock.
func (s *sharedStream) launch(key flightKey) *flight {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{done: make(chan struct{}), cancel: cancel}
	s.flights[key] = f
	m := wire.ReadOutput{Offset: key.offset, Max: fetchSize, Follow: key.follow}
	if key.isQuestion {
		m.Max = 0
	}
	go func() {
		defer cancel()
		p, err := s.askInTime(ctx, m)
		s.source.mu.Lock()
		defer s.source.mu.Unlock()
		if err == nil && !p.isUnknown {
			s.learn(key.offset, &p)
		}
		f.part, f.err = p, err
		s.land(key, f)
		close(f.done)
	}()
	return f
}

// askInTime asks the runner, and gives up when it doesn't answer what it has an answer to.
func (s *sharedStream) askInTime(ctx context.Context, m wire.ReadOutput) (part, error) {
	if m.Follow {
		return s.ask(ctx, m)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errSilent)
	defer cancel()
	p, err := s.ask(ctx, m)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return p, err
}

// land has nobody join the flight any more. It needs the lock.
func (s *sharedStream) land(key flightKey, f *flight) {
	if s.flights[key] == f {
		delete(s.flights, key)
	}
}

// learn takes an answer. Answers may overtake each other. It needs the lock.
func (s *sharedStream) learn(offset int64, p *part) {
	if !s.info.Complete && (p.info.Complete || p.info.Bytes >= s.info.Bytes) {
		s.info = p.info
	}
	end := s.start + int64(len(s.window))
	switch {
	case len(p.data) == 0 || offset+int64(len(p.data)) <= end:
	case offset == end && len(s.window) > 0:
		if over := len(s.window) + len(p.data) - sharedWindow; over > 0 {
			s.window = s.window[:copy(s.window, s.window[over:])]
			s.start += int64(over)
		}
		s.window = append(s.window, p.data...)
	default:
		s.start, s.window = offset, append(s.window[:0], p.data...)
	}
}
