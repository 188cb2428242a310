package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gocloud.dev/blob"
	"k8s.io/apimachinery/pkg/types"
)

// sweepAge is how old what a sweep removes is: a call that the operator doesn't know yet keeps its output.
const sweepAge = time.Hour

// Delete removes all that is stored of a call, and ends its writers.
func (s *Store) Delete(ctx context.Context, uid types.UID) error {
	prefix, err := callPrefix(uid)
	if err != nil {
		return err
	}
	if err := s.endWriters(ctx, uid); err != nil {
		return err
	}
	// Each round removes what the first page lists, so that no round depends on a place in a list that changes.
	for {
		page, _, err := s.listPage(ctx, blob.FirstPageToken, prefix, "")
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, object := range page {
			if err := s.remove(ctx, object.Key); err != nil {
				return err
			}
		}
	}
	if s.bucket.forget == nil {
		return nil
	}
	return s.bucket.forget(prefix)
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

// Sweep removes what is stored of calls that isAlive doesn't know, if all of it is older than an hour. It holds a page of
// names in memory at a time. A call that can't be removed doesn't keep it from the others.
func (s *Store) Sweep(ctx context.Context, isAlive func(types.UID) bool) (removed int, err error) {
	var wrong []error
	for token := blob.FirstPageToken; len(token) > 0; {
		var page []*blob.ListObject
		page, token, err = s.listPage(ctx, token, callsPrefix, "/")
		if err != nil {
			return removed, errors.Join(append(wrong, err)...)
		}
		for _, object := range page {
			uid := types.UID(strings.TrimSuffix(strings.TrimPrefix(object.Key, callsPrefix), "/"))
			if _, err := callPrefix(uid); err != nil || !object.IsDir || isAlive(uid) {
				continue
			}
			swept, err := s.sweepCall(ctx, uid)
			if err != nil && len(wrong) < 10 {
				wrong = append(wrong, err)
			}
			if swept {
				removed++
			}
		}
	}
	return removed, errors.Join(wrong...)
}

// sweepCall removes what is stored of a call unless something of it is younger than sweepAge.
func (s *Store) sweepCall(ctx context.Context, uid types.UID) (bool, error) {
	prefix, err := callPrefix(uid)
	if err != nil {
		return false, err
	}
	young := time.Now().Add(-sweepAge)
	for token := blob.FirstPageToken; len(token) > 0; {
		var page []*blob.ListObject
		page, token, err = s.listPage(ctx, token, prefix, "")
		if err != nil {
			return false, err
		}
		for _, object := range page {
			if object.ModTime.After(young) {
				return false, nil
			}
		}
	}
	err = s.Delete(ctx, uid)
	return err == nil, err
}

// listPage returns a page of objects and the token of the next one, which is empty at the end.
func (s *Store) listPage(ctx context.Context, token []byte, prefix, delimiter string) ([]*blob.ListObject, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	page, next, err := s.bucket.ListPage(ctx, token, s.pageSize, &blob.ListOptions{Prefix: prefix, Delimiter: delimiter})
	if err != nil {
		return nil, nil, fmt.Errorf("list %s in the output store: %w", prefix, err)
	}
	return page, next, nil
}
