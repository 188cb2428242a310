package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"time"

	"gocloud.dev/blob"
	"k8s.io/apimachinery/pkg/types"
)

// sweepAge is how old what a sweep removes is: a call that the operator doesn't know yet keeps its output.
const sweepAge = time.Hour

// listTries is how often a list is asked for. That of a folder fails if a file of it goes meanwhile.
const listTries = 100

// Delete ends the writers of a call, and removes all that is stored of it. What a list leaves out that changes while it is read, a sweep finds.
func (s *Store) Delete(ctx context.Context, uid types.UID) error {
	prefix, err := callPrefix(uid)
	if err != nil {
		return err
	}
	if err := s.endWriters(ctx, uid); err != nil {
		return err
	}
	for object, err := range s.list(ctx, prefix, "") {
		if err == nil {
			err = s.remove(ctx, object.Key)
		}
		if err != nil {
			return err
		}
	}
	return s.location.removeFolder(prefix)
}

func (s *Store) endWriters(ctx context.Context, uid types.UID) error {
	var ended []*Writer
	s.mu.Lock()
	for key, w := range s.writers {
		if key.UID == uid {
			w.cancel(errDeleted)
			ended = append(ended, w)
		}
	}
	s.mu.Unlock()
	for _, w := range ended {
		select {
		case <-w.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Sweep removes what is stored of calls that isAlive doesn't know, if all of it is an hour older than the time from which isAlive knows
// them. It holds a page of names in memory at a time. A call that can't be removed doesn't keep it from the others.
func (s *Store) Sweep(ctx context.Context, known time.Time, isAlive func(types.UID) bool) (removed int, err error) {
	var wrong []error
	for object, err := range s.list(ctx, callsPrefix, "/") {
		if err != nil {
			return removed, errors.Join(append(wrong, err)...)
		}
		uid := types.UID(strings.TrimSuffix(strings.TrimPrefix(object.Key, callsPrefix), "/"))
		if !validUID.MatchString(string(uid)) || !object.IsDir || isAlive(uid) {
			continue
		}
		swept, err := s.sweepCall(ctx, uid, known.Add(-sweepAge))
		if err != nil && len(wrong) < 10 {
			wrong = append(wrong, err)
		}
		if swept {
			removed++
		}
	}
	return removed, errors.Join(wrong...)
}

// sweepCall removes what is stored of a call unless something of it is younger than a time.
func (s *Store) sweepCall(ctx context.Context, uid types.UID, young time.Time) (bool, error) {
	prefix, err := callPrefix(uid)
	if err != nil {
		return false, err
	}
	for object, err := range s.list(ctx, prefix, "") {
		if err != nil || object.ModTime.After(young) {
			return false, err
		}
	}
	err = s.Delete(ctx, uid)
	return err == nil, err
}

// list returns objects, of which a page is in memory at a time. An error is the last of them.
func (s *Store) list(ctx context.Context, prefix, delimiter string) iter.Seq2[*blob.ListObject, error] {
	return func(yield func(*blob.ListObject, error) bool) {
		for token := blob.FirstPageToken; len(token) > 0; {
			page, next, err := s.listPage(ctx, token, prefix, delimiter)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, object := range page {
				if !yield(object, nil) {
					return
				}
			}
			token = next
		}
	}
}

// listPage returns a page of objects and the token of the next one, which is empty at the end.
func (s *Store) listPage(ctx context.Context, token []byte, prefix, delimiter string) ([]*blob.ListObject, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	for try := 1; ; try++ {
		page, next, err := s.bucket.ListPage(ctx, token, s.pageSize, &blob.ListOptions{Prefix: prefix, Delimiter: delimiter})
		if err == nil {
			return page, next, nil
		}
		if try == listTries || !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("list %s in the output store: %w", prefix, err)
		}
	}
}
