package queue

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// seeding is one read of what an earlier process left, shared by those who ask for it meanwhile.
type seeding struct {
	// released are the calls that were released during the read. The owner's lock guards it.
	released map[types.NamespacedName]struct{}
	// done is closed after err was set.
	done chan struct{}
	err  error
}

var errInterrupted = errors.New("the read of an earlier process's calls was interrupted")

func newSeeding() *seeding {
	return &seeding{released: map[types.NamespacedName]struct{}{}, done: make(chan struct{}), err: errInterrupted}
}

// wait returns the error of the read, which somebody else runs.
func (s *seeding) wait(ctx context.Context) error {
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the read of an earlier process's calls: %w", ctx.Err())
	}
}

// runSeeding reads, and hands the result to finish, also after an error or a panic.
func runSeeding[T any](ctx context.Context, s *seeding, read func(context.Context) (T, error), finish func(T)) error {
	var result T
	defer func() {
		finish(result)
		close(s.done)
	}()
	result, s.err = read(ctx)
	return s.err
}
