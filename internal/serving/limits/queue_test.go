package limits

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// queueTest runs operations in a queue and records the order in which they start.
type queueTest struct {
	t       *testing.T
	queue   *Queue
	mu      sync.Mutex
	started []string
	failed  map[string]error
	finish  map[string]func()
}

func newQueueTest(t *testing.T, limits QueueLimits) *queueTest {
	return &queueTest{t: t, queue: NewQueue(limits), failed: map[string]error{}, finish: map[string]func(){}}
}

// request starts an operation called name, whose source is the letter that it starts with, and waits until it runs, has
// failed or is in the queue.
func (q *queueTest) request(ctx context.Context, name string) {
	go func() {
		release, err := q.queue.Acquire(ctx, name[:1])
		q.mu.Lock()
		defer q.mu.Unlock()
		if err != nil {
			q.failed[name] = err
			return
		}
		q.started = append(q.started, name)
		q.finish[name] = release
	}()
	synctest.Wait()
}

// done ends a running operation.
func (q *queueTest) done(name string) {
	q.t.Helper()
	q.mu.Lock()
	release := q.finish[name]
	q.mu.Unlock()
	if release == nil {
		q.t.Fatalf("%s isn't running; started: %q", name, q.started)
	}
	release()
	synctest.Wait()
}

func (q *queueTest) expectStarted(want string) {
	q.t.Helper()
	if diff := cmp.Diff(strings.Fields(want), q.started); diff != "" {
		q.t.Errorf("started (-want +got):\n%s", diff)
	}
}

func TestSourcesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueueTest(t, QueueLimits{Running: 1, RunningPerSource: 1, Waiting: 10, WaitingPerSource: 10})
		for _, name := range strings.Fields("a1 a2 a3 a4 b1 b2 c1") {
			q.request(t.Context(), name)
		}
		q.expectStarted("a1")
		for _, name := range strings.Fields("a1 a2 b1 c1 a3 b2 a4") {
			q.done(name)
		}
		q.expectStarted("a1 a2 b1 c1 a3 b2 a4")
	})
}

// A source at its limit leaves the rest to others, even if it came first.
func TestOneSourceCannotRunEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueueTest(t, QueueLimits{Running: 3, RunningPerSource: 2, Waiting: 10, WaitingPerSource: 10})
		for _, name := range strings.Fields("a1 a2 a3 a4 b1 b2") {
			q.request(t.Context(), name)
		}
		q.expectStarted("a1 a2 b1")
		q.done("b1")
		q.expectStarted("a1 a2 b1 b2")
		q.done("b2")
		q.expectStarted("a1 a2 b1 b2")
		q.done("a2")
		q.expectStarted("a1 a2 b1 b2 a3")
		for _, name := range strings.Fields("a1 a3 a4") {
			q.done(name)
		}
	})
}

func TestOneSourceCannotFillTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueueTest(t, QueueLimits{Running: 1, RunningPerSource: 1, Waiting: 4, WaitingPerSource: 2})
		for _, name := range strings.Fields("a1 a2 a3 a4 b1") {
			q.request(t.Context(), name)
		}
		if diff := cmp.Diff([]string{"a4"}, keysOf(q.failed)); diff != "" || !errors.Is(q.failed["a4"], ErrSourceBusy) {
			t.Errorf("failed: %v", q.failed)
		}
		for _, name := range strings.Fields("a1 a2 b1 a3") {
			q.done(name)
		}
	})
}

// In a full queue, the source with the most waiters loses its last one, until every source has its share.
func TestAFullQueueMakesRoomForNewSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueueTest(t, QueueLimits{Running: 1, RunningPerSource: 1, Waiting: 4, WaitingPerSource: 4})
		for _, name := range strings.Fields("a0 a1 a2 a3 a4 b1 b2 c1 d1 e1") {
			q.request(t.Context(), name)
		}
		if diff := cmp.Diff(strings.Fields("a2 a3 a4 b2 e1"), keysOf(q.failed)); diff != "" {
			t.Errorf("failed (-want +got):\n%s", diff)
		}
		for name, err := range q.failed {
			if !errors.Is(err, ErrBusy) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range strings.Fields("a0 a1 b1 c1 d1") {
			q.done(name)
		}
		q.expectStarted("a0 a1 b1 c1 d1")
	})
}

func TestAWaiterThatGivesUpLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueueTest(t, QueueLimits{Running: 1, RunningPerSource: 1, Waiting: 4, WaitingPerSource: 4})
		ctx, cancel := context.WithCancel(t.Context())
		q.request(t.Context(), "a1")
		q.request(ctx, "b1")
		q.request(t.Context(), "c1")
		cancel()
		synctest.Wait()
		if !errors.Is(q.failed["b1"], context.Canceled) {
			t.Errorf("failed: %v", q.failed)
		}
		q.done("a1")
		q.done("c1")
		for _, name := range strings.Fields("a2 b2 b3 b4 b5") {
			q.request(t.Context(), name)
		}
		q.expectStarted("a1 c1 a2")
		if len(q.failed) != 1 {
			t.Errorf("it still counts as one that waits: %v", q.failed)
		}
		for _, name := range strings.Fields("a2 b2 b3 b4 b5") {
			q.done(name)
		}
	})
}

func keysOf[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
