package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
)

// ErrAway says that the runner which has the call isn't connected. It is an output.ErrNotFound.
var ErrAway = fmt.Errorf("the call's runner isn't connected: %w", output.ErrNotFound)

// RunnerSource reads the output of calls from their runners, as long as those have it: while the process runs, and afterwards
// for as long as the pod stays.
//
// The readers of one stream share what is asked of its runner, and the last sharedWindow bytes of the answers. So those who
// follow it cost the pod one Read, however many they are, and a reader that is behind has one of its own. Nothing is sent to
// a reader that doesn't ask: a slow one slows nobody, and reads on from what is kept in the pod.
//
// When a connection ends, its readers wait up to ReconnectWait for the runner to come back, and go on at their offset. They don't wait for
// the runner of a single call whose result was acknowledged: it exits.
type RunnerSource struct {
	Hub *Hub
	// RunnerOf is the hash of the key of the runner that a call is recorded to run on; empty for none. What runners say
	// themselves doesn't count: none can show another call's output.
	RunnerOf func(ctx context.Context, key output.Key) (keyHash string, err error)

	// mu is for the streams too: nothing is done with it but to copy what is in memory.
	mu      sync.Mutex
	streams map[sharedKey]*sharedStream
}

var _ output.Source = (*RunnerSource)(nil)

// sharedKey names a stream of a call on one runner.
type sharedKey struct {
	key     output.Key
	keyHash string
}

// Open implements output.Source.
func (s *RunnerSource) Open(ctx context.Context, key output.Key) (output.Reader, error) {
	keyHash, err := s.RunnerOf(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the call's runner: %w", err)
	case keyHash == "":
		return nil, output.ErrNotFound
	case s.Hub.RunnerByKey(keyHash) == nil:
		return nil, ErrAway
	}
	st := s.enter(sharedKey{key, keyHash})
	p, err := st.fetch(ctx, flightKey{isQuestion: true})
	if err == nil && p.isUnknown {
		err = output.ErrNotFound
	}
	if err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// enter returns a stream for another reader.
func (s *RunnerSource) enter(key sharedKey) *sharedStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[sharedKey]*sharedStream{}
	}
	st := s.streams[key]
	if st == nil {
		st = &sharedStream{source: s, sharedKey: key, flights: map[flightKey]*flight{}}
		s.streams[key] = st
	}
	st.readers++
	return st
}

var (
	errOffset = errors.New("an offset before the start of the stream")
	// errNothing says that a runner says that there is more, and doesn't send it.
	errNothing = errors.New("the runner doesn't send what it says that it has")
)

// maxEmpty is how often a runner may answer with nothing in spite of what it says: the process may have written in between.
const maxEmpty = 8

// ReadAt implements output.Reader.
func (s *sharedStream) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	switch {
	case offset < 0:
		return 0, errOffset
	case len(p) == 0:
		return 0, nil
	}
	for range maxEmpty {
		if n, err := s.readKnown(p, offset); n > 0 || err != nil {
			return n, err
		}
		got, err := s.fetch(ctx, flightKey{offset: offset})
		switch {
		case err != nil:
			return 0, err
		case got.isUnknown:
			return 0, output.ErrNotFound
		case len(got.data) > 0:
			return copy(p, got.data), nil
		}
		if err := errorAt(got.info, offset); err != nil {
			return 0, err
		}
	}
	return 0, errNothing
}

// errorAt is the error of an offset where there are no bytes; nil where there should be some.
func errorAt(info output.Info, offset int64) error {
	switch {
	case offset >= info.Bytes && info.Complete:
		return io.EOF
	case offset >= info.Bytes:
		return output.ErrNoMore
	case offset >= info.Missing.Start && offset < info.Missing.End:
		return &output.MissingError{Next: info.Missing.End}
	default:
		return nil
	}
}

// Wait implements output.Reader.
func (s *sharedStream) Wait(ctx context.Context, n int64) error {
	for empty := 0; empty < maxEmpty; {
		before := s.Info()
		if before.Bytes > n || before.Complete {
			return nil
		}
		got, err := s.fetch(ctx, flightKey{offset: before.Bytes, follow: true})
		switch {
		case err != nil:
			return err
		case got.isUnknown:
			return output.ErrNotFound
		}
		if after := s.Info(); after.Bytes == before.Bytes && !after.Complete {
			empty++
		}
	}
	return errNothing
}

// ask asks the runner, on whichever connection it has.
func (s *sharedStream) ask(ctx context.Context, m wire.ReadOutput) (part, error) {
	m.CallUID, m.Stream, m.Artifact = string(s.key.UID), string(s.key.Stream), s.key.Artifact
	for {
		runner, err := s.source.Hub.awaitRunner(ctx, s.keyHash)
		if err != nil {
			return part{}, err
		}
		p, err := runner.reads.ask(ctx, m)
		switch {
		case !errors.Is(err, errEnded):
			return p, err
		case runner.hasExited():
			return part{}, ErrAway
		}
	}
}
