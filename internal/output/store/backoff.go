package store

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// firstRetry is how long a writer waits after a failure, and longer after each one in a row, up to maxDelay.
var firstRetry = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 100, Cap: maxDelay / 2}

const maxDelay = 10 * time.Second

// pause waits before the next try. Writers that failed together don't try again together.
func (w *Writer) pause(ctx context.Context) error {
	select {
	case <-time.After(w.retry.Step()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
