package mcpserver

import (
	"context"
	"errors"

	"toolcall.dev/operator/internal/fair"
)

var (
	// errSourceBusy means that too many requests of one source wait already.
	errSourceBusy = errors.New("too many tokens from this address are waiting to be checked: try again")
	// errBusy means that too many requests of all sources wait.
	errBusy = errors.New("too many tokens are waiting to be checked: try again")
)

// queueLimits bounds a fairQueue, in total and for one source.
type queueLimits struct {
	running, runningPerSource int
	waiting, waitingPerSource int
}

// fairQueue bounds how many operations run at a time. Sources whose operations wait take turns, so that a source with
// many operations delays only its own. When the queue is full, the source with the most waiters loses one.
type fairQueue struct {
	running          *fair.Turns[string]
	waiting          *fair.Budget[string]
	waitingPerSource int
}

func newFairQueue(l queueLimits) *fairQueue {
	return &fairQueue{
		running:          fair.NewTurns[string](int64(l.running), int64(l.runningPerSource)),
		waiting:          fair.NewBudget[string](fair.Limits{Total: l.waiting, Each: []int{l.waitingPerSource}}),
		waitingPerSource: l.waitingPerSource,
	}
}

// acquire waits until an operation of the source may run. The caller calls release when it has finished.
func (q *fairQueue) acquire(ctx context.Context, source string) (release func(), err error) {
	if release, ok := q.running.TryAcquire(source, 1); ok {
		return release, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	place, full := q.waiting.Hold(fair.Holder{Evict: func() { cancel(errBusy) }}, fair.Place[string]{Keys: []string{source}})
	switch {
	case full != nil && full.Of[0] >= q.waitingPerSource:
		return nil, errSourceBusy
	case full != nil:
		return nil, errBusy
	}
	defer place.Release()
	release, err = q.running.Acquire(ctx, source, 1)
	if err != nil && errors.Is(context.Cause(ctx), errBusy) {
		return nil, errBusy
	}
	return release, err
}
