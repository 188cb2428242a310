package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

// stream is the output of a process, which the test writes. It keeps what the limit allows, as a pod does.
type stream struct {
	mu      sync.Mutex
	data    []byte
	limit   int64
	ended   bool
	err     error
	changed chan struct{}
	closed  chan struct{}
	// onRead is called before each read.
	onRead func(ctx context.Context, offset int64) error
	// lost is what the source has lost beside that.
	lost span
	// sha256 is what the source says instead of the truth, if it isn't empty.
	sha256 string
}

func newStream() *stream {
	return &stream{limit: MaxLimit, changed: make(chan struct{}), closed: make(chan struct{})}
}

// ended returns the stream of a process that has ended.
func ended(data []byte) *stream {
	s := newStream()
	s.write(data)
	s.end()
	return s
}

func (s *stream) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) write(data []byte) { s.change(func() { s.data = append(s.data, data...) }) }
func (s *stream) end()              { s.change(func() { s.ended = true }) }
func (s *stream) fail(err error)    { s.change(func() { s.err = err }) }
func (s *stream) Close()            { close(s.closed) }
func (s *stream) Info() output.Info { s.mu.Lock(); defer s.mu.Unlock(); return s.info() }
func (s *stream) missing() span {
	return missing(output.Info{Bytes: int64(len(s.data)), Missing: output.Range(s.lost)}, s.limit)
}
func (s *stream) has(n int64) bool { return int64(len(s.data)) > n || s.ended }

func (s *stream) info() output.Info {
	info := output.Info{Bytes: int64(len(s.data)), Complete: s.ended, Missing: output.Range(s.missing()), Lost: !s.lost.empty()}
	if s.ended {
		if info.SHA256 = s.sha256; info.SHA256 == "" {
			info.SHA256 = hashOf(s.data)
		}
	}
	return info
}

func (s *stream) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	if s.onRead != nil {
		if err := s.onRead(ctx, offset); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.missing()
	switch {
	case s.err != nil:
		return 0, s.err
	case m.Start <= offset && offset < m.End:
		return 0, &output.MissingError{Next: m.End}
	case offset >= int64(len(s.data)) && s.ended:
		return 0, io.EOF
	case offset >= int64(len(s.data)):
		return 0, output.ErrNoMore
	}
	end := int64(len(s.data))
	if !m.empty() && offset < m.Start {
		end = m.Start
	}
	// Not all at once: readers return what they have.
	return copy(p[:min(len(p), 300_001)], s.data[offset:end]), nil
}

func (s *stream) Wait(ctx context.Context, n int64) error {
	for {
		s.mu.Lock()
		has, err, changed := s.has(n), s.err, s.changed
		s.mu.Unlock()
		if has {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// noise returns bytes of which no two parts are alike.
func noise(seed uint64, n int) []byte {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	data := make([]byte, n)
	_, _ = source.Read(data)
	return data
}

var uids struct {
	sync.Mutex
	n int
}

// newKey names a stream of a call that nobody else has.
func newKey() output.Key {
	uids.Lock()
	defer uids.Unlock()
	uids.n++
	uid := types.UID(fmt.Sprintf("6f1a3c58-0000-4000-8000-%012d", uids.n))
	return output.Key{Namespace: "team", Name: "call", UID: uid, Stream: output.Stdout}
}

func keep(t *testing.T, store *Store, key output.Key, source *stream, limit int64) *Writer {
	t.Helper()
	w, err := store.Keep(t.Context(), key, source, limit)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// wait returns the status of a writer that has done its work, and checks that it leaves its source alone then.
func awaitState(t *testing.T, w *Writer, source *stream) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	select {
	case <-w.Done():
	case <-ctx.Done():
		t.Fatalf("the writer goes on: %+v", w.Status())
	}
	select {
	case <-source.closed:
	default:
		t.Error("the writer doesn't close its source")
	}
	return w.Status()
}

// stores fails unless a stream is stored in a state.
func stores(t *testing.T, w *Writer, source *stream, want Status) {
	t.Helper()
	if got := awaitState(t, w, source); got != want {
		t.Fatalf("the writer ends as %+v, not as %+v", got, want)
	}
}

// readRange reads a stream from an offset on until n bytes are there or an error.
func readRange(ctx context.Context, r output.Reader, offset int64, n, chunk int) ([]byte, error) {
	var all bytes.Buffer
	for all.Len() < n {
		p := make([]byte, min(chunk, n-all.Len()))
		got, err := r.ReadAt(ctx, p, offset+int64(all.Len()))
		all.Write(p[:got])
		if err != nil {
			return all.Bytes(), err
		}
	}
	return all.Bytes(), nil
}

// mustRead fails unless the store has a stream whole.
func mustRead(t *testing.T, store *Store, key output.Key, want []byte) {
	t.Helper()
	r, err := store.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	info := r.Info()
	if info.Bytes != int64(len(want)) || !info.Complete || info.SHA256 != hashOf(want) || info.Missing != (output.Range{}) {
		t.Errorf("of %d bytes the store says %+v", len(want), info)
	}
	got, err := readRange(t.Context(), r, 0, len(want)+1, 100_003)
	if !errors.Is(err, io.EOF) || !bytes.Equal(got, want) {
		t.Fatalf("of %d bytes the store hands out %d, then %v; the same: %t", len(want), len(got), err, bytes.Equal(got, want))
	}
}

// objects lists what the store has of a call.
func objects(t *testing.T, store *Store, key output.Key) []string {
	t.Helper()
	prefix, err := callPrefix(key.UID)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for object, err := range store.list(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, object.Key[len(prefix):])
	}
	return names
}
