package store

import (
	"context"
	"errors"
	"io"
	"sort"

	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
)

// Store is a source of streams that are stored to their end.
var _ output.Source = (*Store)(nil)

// Open returns a stored stream. It is ErrNotFound while the stream is being stored.
func (s *Store) Open(ctx context.Context, key output.Key) (output.Reader, error) {
	i, err := s.readIndex(ctx, key)
	if errors.Is(err, output.ErrNotFound) {
		err = s.checkBucket(ctx, err)
	}
	if err != nil {
		return nil, s.readError(ctx, err)
	}
	prefix, err := streamPrefix(key)
	if err != nil {
		return nil, err
	}
	return &reader{store: s, prefix: prefix, index: i}, nil
}

// checkBucket tells a bucket that isn't there from an object, where the service's answer doesn't.
func (s *Store) checkBucket(ctx context.Context, absent error) error {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	if isThere, err := s.bucket.IsAccessible(ctx); err == nil && !isThere {
		return errors.New("the output store's bucket isn't there")
	}
	// An account that may not list can't tell.
	return absent
}

// readError is what a reader is told: not where the store is and how it is asked.
func (s *Store) readError(ctx context.Context, err error) error {
	if errors.Is(err, output.ErrNotFound) || ctx.Err() != nil {
		return err
	}
	s.tell(metrics.StoreRead, err)
	if errors.As(err, new(*CorruptError)) {
		return err
	}
	return errAway
}

// errAway is any error of the storage service.
var errAway = errors.New("the output store doesn't answer as it should; the operator's log says more")

// reader reads a stored stream. Nothing of it changes.
type reader struct {
	store  *Store
	prefix string
	index  *index
}

func (r *reader) Info() output.Info {
	return output.Info{Bytes: r.index.Bytes, Complete: true, SHA256: r.index.SHA256, Missing: output.Range(r.index.Missing)}
}

// ReadAt hands out bytes of a part that was checked whole.
func (r *reader) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	if offset < 0 || len(p) == 0 {
		return 0, errors.New("read at least one byte, from offset 0 or above")
	}
	if offset >= r.index.Bytes {
		return 0, io.EOF
	}
	if m := r.index.Missing; m.Start <= offset && offset < m.End {
		return 0, &output.MissingError{Next: m.End}
	}
	parts := r.index.Parts
	at := parts[sort.Search(len(parts), func(n int) bool { return parts[n].end() > offset })]
	name := r.prefix + at.name()
	data, err := r.store.cache.load(ctx, name+" "+at.SHA256, func(ctx context.Context) ([]byte, error) {
		return r.store.readPart(ctx, name, at)
	})
	if err != nil {
		return 0, r.store.readError(ctx, err)
	}
	return copy(p, data[offset-at.Offset:]), nil
}

// Wait has nothing to wait for.
func (r *reader) Wait(ctx context.Context, _ int64) error { return ctx.Err() }

func (r *reader) Close() {}
