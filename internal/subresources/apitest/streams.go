package apitest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
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

func newStreams() *Streams { return &Streams{all: map[output.Key]*Stream{}} }

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

// Open returns a stream.
func (s *Streams) Open(_ context.Context, key output.Key) (output.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.all[key]
	if !ok {
		return nil, output.ErrNotFound
	}
	return &reader{r, make(chan struct{})}, nil
}

// Stream is one that grows.
type Stream struct {
	mu       sync.Mutex
	data     []byte
	missing  output.Range
	sum      string
	complete bool
	changed  chan struct{}
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

// reader reads a stream.
type reader struct {
	*Stream
	closed chan struct{}
}

func (r *reader) Close() { close(r.closed) }

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
	case r.missing.Start <= offset && offset < r.missing.End:
		return 0, &output.MissingError{Next: r.missing.End}
	case offset < r.missing.Start:
		end = r.missing.Start
	case offset >= end && r.complete:
		return 0, io.EOF
	case offset >= end:
		return 0, output.ErrNoMore
	}
	return copy(p, r.data[offset:end]), nil
}

func (r *reader) Wait(ctx context.Context, n int64) error {
	for {
		r.mu.Lock()
		changed, there := r.changed, int64(len(r.data)) > n || r.complete
		r.mu.Unlock()
		if there {
			return nil
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

func encode(p []byte) string { return base64.StdEncoding.EncodeToString(p) }
