package files

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

// impatient is a context that ends when somebody has to wait for something else.
type impatient struct {
	context.Context
	waited bool
}

func (c *impatient) Done() <-chan struct{} {
	c.waited = true
	closed := make(chan struct{})
	close(closed)
	return closed
}

func (c *impatient) Err() error {
	if c.waited {
		return context.Canceled
	}
	return nil
}

// TestEditAgainstMoveAndDelete has another request come between the comparison of an Edit and its rename.
func TestEditAgainstMoveAndDelete(t *testing.T) {
	for name, other := range map[string]spec.File{
		"onto it": {Operation: spec.OperationMove, Path: "other", Destination: "f", Overwrite: true},
		"of it":   {Operation: spec.OperationMove, Path: "f", Destination: "new"},
		"Delete":  {Operation: spec.OperationDelete, Path: "f"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.file("f", "old")
			w.file("other", "other")
			other.WorkingDir = w.root
			came := false
			var otherErr error
			ctx := &contextFunc{Context: t.Context(), err: func() error {
				if came || !isComparing() {
					return nil
				}
				came = true
				_, _, otherErr = Do(&impatient{Context: t.Context()}, &w.rules, &other)
				return nil
			}}
			edit := &spec.File{Operation: spec.OperationEdit, Path: w.root + "/f", OldString: "old", NewString: "new"}
			_, _, err := Do(ctx, &w.rules, edit)
			if !came || err != nil || !errors.Is(otherErr, context.Canceled) {
				t.Errorf("came in between: %v; the Edit: %v; the other: %v", came, err, otherErr)
			}
			// The lock is free again.
			if w.must(other); name != "onto it" {
				if _, err := os.Lstat(w.root + "/f"); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("f is still there: %v", err)
				}
			}
		})
	}
}

// isComparing says that somebody holds the lock of a name: a file is complete, and doesn't have the name yet.
func isComparing() bool {
	return slices.ContainsFunc(locks[:], func(l chan struct{}) bool { return len(l) > 0 })
}

// TestMovesAtOnce has more names than there are locks: if two moves waited for each other, it would not end.
func TestMovesAtOnce(t *testing.T) {
	w := newWorld(t)
	const names = 200
	for i := range names / 2 {
		w.file(strconv.Itoa(i), "x")
	}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 300 {
				from, to := strconv.Itoa((i*7+worker)%names), strconv.Itoa((i*11+worker*13)%names)
				r := spec.File{Operation: spec.OperationMove, Path: from, Destination: to}
				switch _, _, err := w.do(r); reasonOf(err) {
				case "", reason.FileNotFound, reason.FileExists, reason.InvalidRequest:
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(w.root); err != nil || len(left) != names/2 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
	_, p := w.opened(strconv.Itoa(names), how{missing: true})
	unlock, err := lock(t.Context(), p, p)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
