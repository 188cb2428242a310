package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
)

// sourceTime is for how long the source may take to hand over a part that it says it has: meanwhile the part holds a slot.
const sourceTime = 5 * time.Second

// Status is how far a stream is stored.
type Status struct {
	State State
	// Kept is how many bytes are stored. They can be read once the state is final.
	Kept int64
	// Err is why the last attempt failed, or why the stream is lost.
	Err error
}

// StoreFails says that it was the store that the last attempt failed at, and not what the stream is read from.
func (s Status) StoreFails() bool { return s.Err != nil && !errors.As(s.Err, new(*sourceError)) }

// Writer stores one stream.
type Writer struct {
	store  *Store
	key    output.Key
	prefix string
	reader output.Reader
	limit  int64
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu     sync.Mutex
	status Status

	// The writer's goroutine alone uses these.

	// parts are stored, in their order from the stream's start on until the stream is complete.
	parts []part
	// hash is over the first hashed bytes.
	hash   hash.Hash
	hashed int64
	retry  wait.Backoff
	// deadline is when the writer gives up; zero while the process runs and its output can be read.
	deadline time.Time
}

func newWriter(s *Store, key output.Key, prefix string, reader output.Reader, limit int64) *Writer {
	return &Writer{
		store: s, key: key, prefix: prefix, reader: reader, limit: limit, done: make(chan struct{}),
		status: Status{State: Growing}, hash: sha256.New(), retry: firstRetry,
	}
}

// Done is closed when the writer does nothing more. The state is final then, unless the writer was stopped.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Status is how far the stream is stored.
func (w *Writer) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

func (w *Writer) change(change func(*Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.status)
}

func (w *Writer) setStatus(status Status) { w.change(func(s *Status) { *s = status }) }

// report keeps what went wrong, nil for nothing.
func (w *Writer) report(err error) { w.change(func(s *Status) { s.Err = err }) }

// run stores the stream, until it is stored, lost, or ctx ends.
func (w *Writer) run(ctx context.Context) {
	defer w.reader.Close()
	// Of a stream that was lost, the source may be back, and have all of it. A store that is away is asked again before anything is replaced.
	if i, err := w.stored(ctx); err == nil && i.State != Lost {
		w.setStatus(Status{State: i.State, Kept: i.kept()})
		return
	}
	err := w.follow(ctx)
	if err == nil {
		err = w.finish(ctx)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		w.report(context.Cause(ctx))
	case errors.As(err, new(*sourceError)):
		w.salvage(ctx, err)
	default:
		w.setStatus(Status{State: Lost, Err: err})
	}
}

// stored returns the index that an earlier writer left of the stream.
func (w *Writer) stored(ctx context.Context) (*index, error) {
	if err := w.store.writes.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer w.store.writes.Release(1)
	return w.store.readIndex(ctx, w.key)
}

// follow stores whole parts while the process runs. It goes on for as long as the process does when the store is away,
// and ends when the stream is complete or its source is gone.
func (w *Writer) follow(ctx context.Context) error {
	for {
		err := w.step(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			w.deadline = time.Time{}
			w.retry = firstRetry
			w.report(nil)
			continue
		case errors.As(err, new(*sourceError)):
			w.setDeadline()
			if errors.Is(err, output.ErrNotFound) || time.Now().After(w.deadline) {
				return err
			}
		default:
			// The source is there, and the store isn't.
			w.deadline = time.Time{}
		}
		w.report(err)
		if err := w.pause(ctx); err != nil {
			return err
		}
	}
}

// setDeadline begins to count the time that is left, unless it is counted already.
func (w *Writer) setDeadline() {
	if w.deadline.IsZero() {
		w.deadline = time.Now().Add(patience)
	}
}

// step stores the next part or waits for it. Its error is io.EOF when the stream is complete.
func (w *Writer) step(ctx context.Context) error {
	info := w.reader.Info()
	if err := checkInfo(info); err != nil {
		return &sourceError{err}
	}
	if info.Complete {
		return io.EOF
	}
	next := part{Offset: w.next(), Size: partBytes}
	if next.end() <= available(info, w.limit) {
		stored, err := w.storePart(ctx, next)
		if err == nil {
			w.parts = append(w.parts, stored)
		}
		return err
	}
	until := next.end() - 1
	if next.end() > w.limit || !missing(info, w.limit).empty() {
		// The rest is decided at the end.
		until = math.MaxInt64
	}
	if err := w.reader.Wait(ctx, until); err != nil {
		return &sourceError{err}
	}
	if info := w.reader.Info(); !info.Complete && info.Bytes <= until {
		return &sourceError{io.ErrNoProgress}
	}
	return nil
}

// next is the offset behind the last part that is stored.
func (w *Writer) next() int64 {
	if len(w.parts) == 0 {
		return 0
	}
	return w.parts[len(w.parts)-1].end()
}

// finish stores the rest of a complete stream, and its index.
func (w *Writer) finish(ctx context.Context) error {
	w.setStatus(Status{State: Storing, Kept: w.next(), Err: w.Status().Err})
	w.setDeadline()
	ctx, cancel := context.WithDeadline(ctx, w.deadline)
	defer cancel()
	info := w.reader.Info()
	if err := checkInfo(info); err != nil || !info.Complete {
		return &sourceError{errors.Join(err, errors.New("the stream's source changed its mind at the end"))}
	}
	if info.Lost && info.Missing.End <= w.next() {
		// What the source has lost is stored.
		info.Missing, info.Lost = output.Range{}, false
	}
	i := w.newIndex(Complete, info.Bytes, missing(info, w.limit))
	i.SHA256 = info.SHA256
	if info.Lost && i.Missing != missing(output.Info{Bytes: info.Bytes}, w.limit) {
		return &sourceError{errPodLost}
	}
	if !i.Missing.empty() {
		i.State = Shortened
	}
	i.Parts = layout(info.Bytes, i.Missing, w.parts)
	for n, p := range i.Parts {
		if p.SHA256 != "" {
			continue
		}
		err := w.try(ctx, func() (err error) {
			i.Parts[n], err = w.storePart(ctx, p)
			return err
		})
		if err != nil {
			return err
		}
		w.change(func(s *Status) { s.Kept += p.Size })
	}
	// A source that hasn't seen all that was written, as where another process held the pipe, knows no hash.
	sum := hex.EncodeToString(w.hash.Sum(nil))
	if i.State == Complete && info.SHA256 != "" && (w.hashed != info.Bytes || sum != info.SHA256) {
		return fmt.Errorf("the stream's source says that its sha256 is %s, that of what it handed over is %s", info.SHA256, sum)
	}
	return w.close(ctx, i)
}

// salvage closes a stream whose source is gone, or has lost some of it, with the parts that are stored: the stream's beginning. What an
// earlier writer stored stays, unless that is less.
func (w *Writer) salvage(ctx context.Context, cause error) {
	// One more attempt when the time went by with the source.
	if last := time.Now().Add(w.store.attempt); w.deadline.Before(last) {
		w.deadline = last
	}
	ctx, cancel := context.WithDeadline(ctx, w.deadline)
	defer cancel()
	kept, info := w.next(), w.reader.Info()
	before, err := w.earlier(ctx)
	switch {
	case err != nil:
		w.setStatus(Status{State: Lost, Err: errors.Join(cause, err)})
		return
	case before != nil && before.State != Lost:
		w.setStatus(Status{State: before.State, Kept: before.kept()})
		return
	case before != nil && before.kept() >= kept:
		w.setStatus(Status{State: Lost, Kept: before.kept(), Err: cause})
		return
	case kept == 0:
		w.setStatus(Status{State: Lost, Err: cause})
		return
	}
	if checkInfo(info) != nil {
		info = output.Info{}
	}
	bytes := max(kept, info.Bytes)
	i := w.newIndex(Lost, bytes, span{Start: kept, End: bytes})
	i.SHA256 = info.SHA256
	i.Parts = w.parts
	if err := w.close(ctx, i); err != nil {
		w.setStatus(Status{State: Lost, Err: errors.Join(cause, err)})
		return
	}
	w.report(cause)
}

// earlier returns the index that an earlier writer left of the stream; nil if there is none, or a damaged one.
func (w *Writer) earlier(ctx context.Context) (i *index, err error) {
	err = w.try(ctx, func() error {
		found, err := w.stored(ctx)
		if i = found; errors.Is(err, output.ErrNotFound) || errors.Is(err, output.ErrDamaged) {
			return nil
		}
		return err
	})
	return i, err
}

func (w *Writer) newIndex(state State, bytes int64, missing span) *index {
	if missing.empty() {
		missing = span{}
	}
	return &index{
		Version: indexVersion, UID: w.key.UID, Stream: w.key.Stream, Artifact: w.key.Artifact, State: state, Bytes: bytes, Missing: missing, Parts: []part{},
	}
}

// close writes the index, after which the stream can be read, and removes what the stream doesn't consist of.
func (w *Writer) close(ctx context.Context, i *index) error {
	data := i.encode()
	if err := w.try(ctx, func() error { return w.put(ctx, w.prefix+indexName, data) }); err != nil {
		return err
	}
	w.setStatus(Status{State: i.State, Kept: i.kept()})
	for _, p := range unused(w.parts, i.Parts) {
		// What stays goes with the call.
		_ = w.store.remove(ctx, w.prefix+p.name())
	}
	return nil
}

// try does something until it succeeds, ctx ends, or the stream's source is gone.
func (w *Writer) try(ctx context.Context, do func() error) error {
	var last error
	for {
		err := do()
		if err == nil {
			w.retry = firstRetry
			w.report(nil)
			return nil
		}
		// That the time is over says less than what happened before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if errors.Is(err, output.ErrNotFound) {
			return err
		}
		w.report(last)
		if w.pause(ctx) != nil {
			return last
		}
	}
}

// storePart stores a part and returns it with its hash. Only while it does has the part a place in memory: one that waits
// for the store to come back is read from the source again.
func (w *Writer) storePart(ctx context.Context, p part) (part, error) {
	release, err := w.store.parts.Acquire(ctx, w.key.Namespace, 1)
	if err != nil {
		return p, err
	}
	defer release()
	data := make([]byte, p.Size)
	if err := w.read(ctx, data, p.Offset); err != nil {
		return p, &sourceError{err}
	}
	p.SHA256 = hashOf(data)
	if err := w.put(ctx, w.prefix+p.name(), data); err != nil {
		return p, err
	}
	if p.Offset == w.hashed {
		w.hash.Write(data)
		w.hashed = p.end()
	}
	return p, nil
}

// put writes an object when it is its turn.
func (w *Writer) put(ctx context.Context, name string, data []byte) error {
	if err := w.store.writes.Acquire(ctx, 1); err != nil {
		return err
	}
	defer w.store.writes.Release(1)
	err := w.store.put(ctx, name, data)
	if err != nil && ctx.Err() == nil {
		w.store.tell(metrics.StoreWrite, err)
	}
	return err
}

// read fills data from an offset of the stream.
func (w *Writer) read(ctx context.Context, data []byte, offset int64) error {
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	for len(data) > 0 {
		n, err := w.reader.ReadAt(ctx, data, offset)
		switch {
		case n < 0 || n > len(data):
			return errors.New("the stream's source handed over more than it was asked for")
		case n == 0 && err == nil:
			return io.ErrNoProgress
		case n < len(data) && err != nil:
			return err
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}
