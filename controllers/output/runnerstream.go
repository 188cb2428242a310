package output

import (
	"context"
	"errors"
	"math"
	"sync"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/output"
)

// errRunnerAway says that the runner isn't connected, and may come back: its stream isn't lost yet.
var errRunnerAway = errors.New("the call's runner isn't connected")

// runnerStream is a stream for the output store. Other than a reader of dispatch.RunnerSource it outlives the runner's absence,
// until somebody has proven that the pod is gone, and it is opened when it is first needed: making one asks nobody. It has one user at
// a time, but for end and lose.
type runnerStream struct {
	source *dispatch.RunnerSource
	key    output.Key
	// ended is closed when the process has ended, gone when its pod is gone, or is read no more.
	ended, gone chan struct{}
	end, lose   func()

	reader output.Reader
	// info is what was known last.
	info output.Info
}

func newRunnerStream(hub *dispatch.Hub, key output.Key, keyHash string) *runnerStream {
	s := &runnerStream{key: key, ended: make(chan struct{}), gone: make(chan struct{}), source: sourceOf(hub, keyHash)}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	s.lose = sync.OnceFunc(func() { close(s.gone) })
	return s
}

// sourceOf is what a runner has.
func sourceOf(hub *dispatch.Hub, keyHash string) *dispatch.RunnerSource {
	return &dispatch.RunnerSource{Hub: hub, RunnerOf: func(context.Context, output.Key) (string, error) { return keyHash, nil }}
}

// Info implements output.Reader.
func (s *runnerStream) Info() output.Info {
	if s.reader != nil {
		s.info = s.reader.Info()
	}
	return s.info
}

// ReadAt implements output.Reader.
func (s *runnerStream) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	r, err := s.open(ctx)
	if err != nil {
		return 0, err
	}
	n, err := r.ReadAt(ctx, p, offset)
	return n, s.explain(err)
}

// Wait implements output.Reader. Where only the end counts, nobody is asked before it: to follow a stream has the runner send what it gets.
func (s *runnerStream) Wait(ctx context.Context, n int64) error {
	if n == math.MaxInt64 {
		select {
		case <-s.ended:
			// A new reader asks how long the stream is.
			s.drop()
		case <-s.gone:
			return output.ErrNotFound
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r, err := s.open(ctx)
	if err != nil {
		return err
	}
	return s.explain(r.Wait(ctx, n))
}

// open returns the reader of now. A runner that is still there after somebody has given up its stream, such as a session's, isn't asked.
func (s *runnerStream) open(ctx context.Context) (output.Reader, error) {
	select {
	case <-s.gone:
		return nil, output.ErrNotFound
	default:
	}
	if s.reader != nil {
		return s.reader, nil
	}
	r, err := s.source.Open(ctx, s.key)
	if err != nil {
		return nil, s.explain(err)
	}
	s.reader = r
	return r, nil
}

// explain tells a runner that is away from a stream that is gone.
func (s *runnerStream) explain(err error) error {
	if !errors.Is(err, dispatch.ErrAway) {
		return err
	}
	s.drop()
	select {
	case <-s.gone:
		return output.ErrNotFound
	default:
		return errRunnerAway
	}
}

func (s *runnerStream) drop() {
	if s.reader != nil {
		s.info = s.reader.Info()
		s.reader.Close()
		s.reader = nil
	}
}

// Close implements output.Reader.
func (s *runnerStream) Close() { s.drop() }
