package mcpserver

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	queueLimits

	mu           sync.Mutex
	active       map[string]int
	activeTotal  int
	queues       map[string][]*waiter
	waitingTotal int
	// turns lists the sources that wait, in the order of their turns.
	turns []string
}

// waiter is one waiting operation. Its channel receives nil when the operation may run, or why it may not.
type waiter struct{ answer chan error }

func newFairQueue(limits queueLimits) *fairQueue {
	return &fairQueue{queueLimits: limits, active: map[string]int{}, queues: map[string][]*waiter{}}
}

// acquire waits until an operation of the source may run. The caller calls release when it has finished.
func (q *fairQueue) acquire(ctx context.Context, source string) (release func(), err error) {
	release = sync.OnceFunc(func() { q.release(source) })
	w, err := q.start(source)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return release, nil
	}
	select {
	case err := <-w.answer:
		if err != nil {
			return nil, err
		}
		return release, nil
	case <-ctx.Done():
		if !q.withdraw(source, w) && <-w.answer == nil {
			release()
		}
		return nil, ctx.Err()
	}
}

// start lets the operation run, or returns its place in the queue.
func (q *fairQueue) start(source string) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := len(q.queues[source])
	if own == 0 && q.mayRun(source) {
		q.activeTotal++
		q.active[source]++
		return nil, nil
	}
	switch {
	case own >= q.waitingPerSource:
		return nil, errSourceBusy
	case q.waitingTotal >= q.waiting && !q.displace(own):
		return nil, errBusy
	}
	w := &waiter{answer: make(chan error, 1)}
	if own == 0 {
		q.turns = append(q.turns, source)
	}
	q.queues[source] = append(q.queues[source], w)
	q.waitingTotal++
	return w, nil
}

func (q *fairQueue) mayRun(source string) bool {
	return q.activeTotal < q.running && q.active[source] < q.runningPerSource
}

// displace removes the last waiter of the source that has the most, if that leaves it with at least as many as the
// newcomer's source gets.
func (q *fairQueue) displace(own int) bool {
	longest := ""
	for source, queue := range q.queues {
		if longest == "" || len(queue) > len(q.queues[longest]) {
			longest = source
		}
	}
	queue := q.queues[longest]
	if len(queue) < own+2 {
		return false
	}
	queue[len(queue)-1].answer <- errBusy
	q.queues[longest] = queue[:len(queue)-1]
	q.waitingTotal--
	return true
}

// release ends an operation and starts the waiting operations that may run now.
func (q *fairQueue) release(source string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.activeTotal--
	if q.active[source]--; q.active[source] == 0 {
		delete(q.active, source)
	}
	for {
		next := slices.IndexFunc(q.turns, q.mayRun)
		if next < 0 {
			return
		}
		q.grant(next)
	}
}

// grant starts the first waiter of a source, whose next turn comes after all others.
func (q *fairQueue) grant(turn int) {
	source := q.turns[turn]
	w := q.queues[source][0]
	q.turns = append(slices.Delete(q.turns, turn, turn+1), source)
	q.remove(source, 0)
	q.activeTotal++
	q.active[source]++
	w.answer <- nil
}

// withdraw removes a waiter that gives up. It reports whether the waiter was still in the queue.
func (q *fairQueue) withdraw(source string, w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.queues[source], w)
	if at < 0 {
		return false
	}
	q.remove(source, at)
	return true
}

// remove takes a waiter out of its queue.
func (q *fairQueue) remove(source string, at int) {
	q.waitingTotal--
	q.queues[source] = slices.Delete(q.queues[source], at, at+1)
	if len(q.queues[source]) == 0 {
		delete(q.queues, source)
		q.turns = slices.DeleteFunc(q.turns, func(s string) bool { return s == source })
	}
}
