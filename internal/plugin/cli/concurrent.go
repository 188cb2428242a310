package cli

import (
	"io"
	"iter"
	"sync"

	"golang.org/x/sync/errgroup"
)

// maxWaits is how many objects are waited for at the same time; each of the others has its turn when one has been.
const maxWaits = 50

// InOrder waits for n objects at the same time, and hands over what came of each in their order: one that takes long hides nothing of
// those behind it.
func InOrder[T any](n int, wait func(i int) (T, error)) iter.Seq2[T, error] {
	type outcome struct {
		object T
		err    error
	}
	outcomes := make([]chan outcome, n)
	for i := range outcomes {
		outcomes[i] = make(chan outcome, 1)
	}
	go func() {
		var group errgroup.Group
		group.SetLimit(maxWaits)
		for i := range outcomes {
			group.Go(func() error {
				object, err := wait(i)
				outcomes[i] <- outcome{object, err}
				return nil
			})
		}
		_ = group.Wait()
	}()
	return func(yield func(T, error) bool) {
		for _, next := range outcomes {
			if got := <-next; !yield(got.object, got.err) {
				return
			}
		}
	}
}

// LockedWriter takes what comes from different goroutines.
type LockedWriter struct {
	Mu  *sync.Mutex
	Out io.Writer
}

func (l *LockedWriter) Write(p []byte) (int, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Out.Write(p)
}
