package subresources_test

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

// streams is a source in memory.
type streams struct {
	mu  sync.Mutex
	all map[output.Key]*stream
}

func newStreams() *streams { return &streams{all: map[output.Key]*stream{}} }

// add has a stream of a call from now on.
func (s *streams) add(call *v1alpha1.ToolCall, which output.Stream) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := &stream{changed: make(chan struct{})}
	s.all[output.Key{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: which}] = made
	return made
}

// remove forgets a stream, and breaks its readers off.
func (s *streams) remove(call *v1alpha1.ToolCall, which output.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := output.Key{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: which}
	s.all[key].change(func(r *stream) { r.broken = errors.New("the connection broke") })
	delete(s.all, key)
}

func (s *streams) Open(_ context.Context, key output.Key) (output.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.all[key]
	if !ok {
		return nil, output.ErrNotFound
	}
	r.change(func(r *stream) { r.readers++ })
	return r, nil
}

// stream is one that grows.
type stream struct {
	mu       sync.Mutex
	data     []byte
	missing  output.Range
	complete bool
	broken   error
	readers  int
	// reached is the end of what readers have got.
	reached int64
	changed chan struct{}
}

func (r *stream) change(how func(*stream)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(r)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *stream) write(p []byte) { r.change(func(r *stream) { r.data = append(r.data, p...) }) }
func (r *stream) finish()        { r.change(func(r *stream) { r.complete = true }) }
func (r *stream) Close()         { r.change(func(r *stream) { r.readers-- }) }

// open is how many readers there are.
func (r *stream) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readers
}

// reach is how far readers have got.
func (r *stream) reach() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reached
}

func (r *stream) Info() output.Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	info := output.Info{Bytes: int64(len(r.data)), Complete: r.complete, Missing: r.missing}
	if r.complete {
		info.SHA256 = sum(r.data)
	}
	return info
}

func (r *stream) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
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

func (r *stream) Wait(ctx context.Context, n int64) error {
	for {
		r.mu.Lock()
		changed, broken, there := r.changed, r.broken, int64(len(r.data)) > n || r.complete
		r.mu.Unlock()
		if broken != nil || there {
			return broken
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}
