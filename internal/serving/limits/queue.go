package limits

import (
	"context"
	"errors"

	"toolcall.dev/operator/internal/fair"
)

var (
	// ErrSourceBusy means that too many requests of one source wait already.
	ErrSourceBusy = errors.New("too many tokens from this address are waiting to be checked: try again")
	// ErrBusy means that too many requests of all sources wait.
	ErrBusy = errors.New("too many tokens are waiting to be checked: try again")
)

// QueueLimits bounds a Queue, in total and for one source.
type QueueLimits struct {
	Running, RunningPerSource int
	Waiting, WaitingPerSource int
}

// Queue bounds how many operations run at a time. Sources whose operations wait take turns, so that a source with
// many operations delays only its own. When the queue is full, the source with the most waiters loses one.
type Queue struct {
	running          *fair.Turns[string]
	waiting          *fair.Budget[string]
	waitingPerSource int
}

// NewQueue returns a queue in which nothing waits.
func NewQueue(l QueueLimits) *Queue {
	return &Queue{
		running:          fair.NewTurns[string](int64(l.Running), int64(l.RunningPerSource)),
		waiting:          fair.NewBudget[string](fair.Limits{Total: l.Waiting, Each: []int{l.WaitingPerSource}}),
		waitingPerSource: l.WaitingPerSource,
	}
}

// Acquire waits until an operation of the source may run. The caller calls release when it has finished.
func (q *Queue) Acquire(ctx context.Context, source string) (release func(), err error) {
	if release, ok := q.running.TryAcquire(source, 1); ok {
		return release, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	place, full := q.waiting.Hold(func() { cancel(ErrBusy) }, fair.Place[string]{Keys: []string{source}})
	switch {
	case full != nil && full.Of[0] >= q.waitingPerSource:
		return nil, ErrSourceBusy
	case full != nil:
		return nil, ErrBusy
	}
	defer place.Release()
	release, err = q.running.Acquire(ctx, source, 1)
	if err != nil && errors.Is(context.Cause(ctx), ErrBusy) {
		return nil, ErrBusy
	}
	return release, err
}

// Waiting is how many operations wait.
func (q *Queue) Waiting() int { return q.running.Waiting() }
