package store

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 10 * time.Second
)

// backoff waits longer after each failure in a row. The zero value is ready.
type backoff struct{ delay time.Duration }

func (b *backoff) reset() { b.delay = 0 }

// sleep waits between half of the delay and all of it: writers that failed together don't try again together.
func (b *backoff) sleep(ctx context.Context) error {
	b.delay = min(max(2*b.delay, firstDelay), maxDelay)
	timer := time.NewTimer(b.delay/2 + rand.N(b.delay/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
