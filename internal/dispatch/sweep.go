package dispatch

import (
	"context"
	"errors"
	"time"
)

// sweepInterval is how often the operator looks whether connected runners still belong to something.
const sweepInterval = 30 * time.Second

// sweepForever ends the connections of runners whose Job or call is gone, until the context ends.
func (a *acceptor) sweepForever(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.sweep(ctx)
		}
	}
}

// sweep looks at every session once. When the API server doesn't answer, the rest is judged by the cache alone, and
// those that the cache doesn't know stay until the next time.
func (a *acceptor) sweep(ctx context.Context) {
	answers := true
	for _, s := range a.Hub.all() {
		if ctx.Err() != nil {
			return
		}
		if s.wasAcknowledged() {
			// A runner exits then.
			s.close()
			continue
		}
		c := s.claim()
		switch {
		case a.records.isTrue(ctx, a.records.Cached, c) == nil:
			continue
		case !answers:
			continue
		}
		// No namespace has an empty name: the sweep has a turn of its own.
		err := a.records.check(ctx, "", c)
		switch {
		case errors.Is(err, errUnknown):
			answers = false
		case err != nil:
			s.Refuse(err.Error())
		default:
			// Of calls the cache has those in flight: the reconciler answers the runner of one that has ended.
			a.Hub.notify(s)
		}
	}
}
