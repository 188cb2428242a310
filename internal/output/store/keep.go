package store

import (
	"context"
	"errors"
	"fmt"

	"toolcall.dev/operator/internal/output"
)

// errClosed ends writers when the store closes.
var errClosed = errors.New("the output store is closed")

// errDeleted ends the writers of a call whose output is deleted.
var errDeleted = errors.New("the call's output is deleted")

// Keep begins to store a stream, at most limit bytes of it, and returns at once. The writer closes the reader. ctx is for as
// long as the operator may write, not for one pass over the call.
//
// It begins again with a stream whose writer was stopped, by an operator that ended for example: each part gets the content that it
// has. It has nothing to do for one that is stored. For a stream that is being stored it returns the writer that is there.
func (s *Store) Keep(ctx context.Context, key output.Key, reader output.Reader, limit int64) (*Writer, error) {
	prefix, err := streamPrefix(key)
	if err == nil && (limit < 1 || limit > MaxLimit) {
		err = fmt.Errorf("the limit is %d bytes, it must be between 1 and %d", limit, MaxLimit)
	}
	if err != nil {
		reader.Close()
		return nil, fmt.Errorf("keep %s%s of %s/%s: %w", key.Stream, key.Artifact, key.Namespace, key.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		reader.Close()
		return nil, errClosed
	}
	if w := s.writers[key]; w != nil {
		reader.Close()
		return w, nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	w := newWriter(s, key, prefix, reader, limit)
	w.cancel = stop
	s.writers[key] = w
	s.running.Go(func() {
		defer stop(nil)
		w.run(ctx)
		s.mu.Lock()
		delete(s.writers, key)
		s.mu.Unlock()
		close(w.done)
	})
	return w, nil
}
