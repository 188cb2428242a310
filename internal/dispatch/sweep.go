package dispatch

import (
	"context"
	"errors"
	"time"
)

// sweepInterval is how often the operator looks whether connected runners still belong to something.
const sweepInterval = 30 * time.Second

// sweepForever ends the connections of runners whose Job, call or session is gone, until the context ends.
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

// sweep looks at every runner once, and at those that aren't connected and of which something is remembered. When the API
// server doesn't answer, the rest is judged by the cache alone, and those that the cache doesn't know stay until the next
// time.
func (a *acceptor) sweep(ctx context.Context) {
	answers := true
	for _, s := range a.Hub.all() {
		if s.hasExited() {
			// A runner exits then.
			s.close()
			continue
		}
		live, err := a.look(ctx, s, &answers)
		switch {
		case err != nil && !errors.Is(err, errUnknown):
			s.Refuse(err.Error())
		case live && err == nil:
			// Of calls the cache has those in flight: the reconciler answers the runner of one that has ended.
			a.Hub.notify(s, s.news())
		default:
			if ended := s.news().Ended; len(ended) > 0 {
				// Nobody has taken these results.
				a.Hub.notify(s, News{Ended: ended})
			}
		}
	}
	for _, s := range a.Hub.lost() {
		if _, err := a.look(ctx, s, &answers); err != nil && !errors.Is(err, errUnknown) {
			a.Hub.Forget(s.keyHash)
		}
	}
}

// look says why a runner belongs to nothing. live says that the API server was asked, which happens while it answers.
func (a *acceptor) look(ctx context.Context, s *Runner, answers *bool) (live bool, err error) {
	switch {
	case ctx.Err() != nil:
		return false, errUnknown
	case a.records.isTrue(ctx, a.records.Cached, s) == nil:
		return false, nil
	case !*answers:
		return false, errUnknown
	}
	// No namespace has an empty name: the sweep has a turn of its own.
	err = a.records.check(ctx, "", s)
	*answers = !errors.Is(err, errUnknown)
	return true, err
}
