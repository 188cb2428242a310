package apitest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// Streams is a source in memory.
type Streams struct {
	mu  sync.Mutex
	all map[output.Key]*Stream
}

// NewStreams has no stream yet.
func NewStreams() *Streams { return &Streams{all: map[output.Key]*Stream{}} }

// Add has a stream of a call from now on. One that is there stays: somebody may read it.
func (s *Streams) Add(call *v1alpha1.ToolCall, which output.Stream) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := output.Key{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: which}
	if s.all[key] == nil {
		s.all[key] = &Stream{changed: make(chan struct{})}
	}
	return s.all[key]
}

// AddArtifact has a kept file of a call, whole.
func (s *Streams) AddArtifact(call *v1alpha1.ToolCall, path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := output.Key{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Artifact: path}
	s.all[key] = &Stream{data: data, complete: true, changed: make(chan struct{})}
}

// Remove forgets a stream, and breaks its readers off.
func (s *Streams) Remove(call *v1alpha1.ToolCall, which output.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := output.Key{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: which}
	s.all[key].Break(errors.New("the connection broke"))
	delete(s.all, key)
}

// Open returns a stream.
func (s *Streams) Open(_ context.Context, key output.Key) (output.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.all[key]
	if !ok {
		return nil, output.ErrNotFound
	}
	r.change(func() { r.readers++ })
	return &reader{r, make(chan struct{})}, nil
}

// Stream is one that grows.
type Stream struct {
	mu       sync.Mutex
	data     []byte
	missing  output.Range
	sum      string
	complete bool
	broken   error
	readers  int
	// reached is the end of what readers have got.
	reached int64
	changed chan struct{}
}

func (s *Stream) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Write adds bytes.
func (s *Stream) Write(p []byte) (int, error) {
	s.change(func() { s.data = append(s.data, p...) })
	return len(p), nil
}

// Finish says that there will be no more.
func (s *Stream) Finish() { s.change(func() { s.complete = true }) }

// Leave has a part not be kept: from start up to, not including, end.
func (s *Stream) Leave(start, end int64) {
	s.change(func() { s.missing = output.Range{Start: start, End: end} })
}

// Claim has the stream say a hash that may be wrong.
func (s *Stream) Claim(sum string) { s.change(func() { s.sum = sum }) }

// Break has reads and waits fail from now on, or not any more with a nil error.
func (s *Stream) Break(err error) { s.change(func() { s.broken = err }) }

// Readers is how many readers there are.
func (s *Stream) Readers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers
}

// Reached is how far readers have got.
func (s *Stream) Reached() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached
}

// reader reads a stream.
type reader struct {
	*Stream
	closed chan struct{}
}

func (r *reader) Close() {
	r.change(func() { r.readers-- })
	close(r.closed)
}

func (r *reader) Info() output.Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	info := output.Info{Bytes: int64(len(r.data)), Complete: r.complete, Missing: r.missing}
	if r.complete {
		sum := sha256.Sum256(r.data)
		info.SHA256 = hex.EncodeToString(sum[:])
		if r.sum != "" {
			info.SHA256 = r.sum
		}
	}
	return info
}

func (r *reader) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := int64(len(r.data))
	switch {
	case r.broken != nil:
		return 0, r.broken
	case r.missing.Start <= offset && offset < r.missing.End:
		return 0, &output.MissingError{Next: r.missing.End}
	case offset < r.missing.Start:
		end = r.missing.Start
	case offset >= end && r.complete:
		return 0, io.EOF
	case offset >= end:
		return 0, output.ErrNoMore
	}
	n := copy(p, r.data[offset:end])
	r.reached = max(r.reached, offset+int64(n))
	return n, nil
}

func (r *reader) Wait(ctx context.Context, n int64) error {
	for {
		r.mu.Lock()
		changed, broken, there := r.changed, r.broken, int64(len(r.data)) > n || r.complete
		r.mu.Unlock()
		if broken != nil || there {
			return broken
		}
		select {
		case <-changed:
		case <-r.closed:
			return errors.New("the reader is closed")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
