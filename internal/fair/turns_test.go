package fair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// crowd enters Turns without goroutines. A name starts with the letter that is its key.
type crowd struct {
	t *testing.T
	*Turns[string]
	names map[string]*waiter[string]
	// order has who was granted what it wanted.
	order []string
}

func newCrowd(t *testing.T, total, each int64) *crowd {
	return &crowd{t: t, Turns: NewTurns[string](total, each), names: map[string]*waiter[string]{}}
}

func (c *crowd) want(name string, amount int64) {
	c.names[name] = c.enter(name[:1], amount)
	c.look()
}

func (c *crowd) end(name string) {
	if slices.Contains(c.order, name) != (c.names[name].place == nil) {
		c.t.Errorf("%s was granted without a word", name)
	}
	c.leave(c.names[name])
	delete(c.names, name)
	c.look()
}

func (c *crowd) look() {
	var granted []string
	for name, w := range c.names {
		select {
		case <-w.granted:
			if !slices.Contains(c.order, name) {
				granted = append(granted, name)
			}
		default:
		}
	}
	slices.Sort(granted)
	c.order = append(c.order, granted...)
}

func (c *crowd) expect(order string) {
	c.t.Helper()
	if want := strings.Fields(order); !slices.Equal(c.order, want) {
		c.t.Errorf("granted in the order %v, want %v", c.order, want)
	}
}

func (c *crowd) expectEmpty() {
	c.t.Helper()
	if c.used != 0 || len(c.lines) != 0 || c.turns.Len() != 0 {
		c.t.Errorf("left are %d, lines %v, turns %d", c.used, c.lines, c.turns.Len())
	}
}

func TestKeysTakeTurns(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 1, 1)
	for _, name := range strings.Fields("a1 a2 a3 a4 b1 c1 b2") {
		c.want(name, 1)
	}
	for _, name := range strings.Fields("a1 a2 b1 c1 a3 b2 a4") {
		c.end(name)
	}
	c.expect("a1 a2 b1 c1 a3 b2 a4")
	c.expectEmpty()
}

// A key at its limit leaves the rest to others, even if it came first, and keeps its turn.
func TestAKeyAtItsLimitWaitsForItself(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 3, 2)
	for _, name := range strings.Fields("a1 a2 a3 a4 b1 b2") {
		c.want(name, 1)
	}
	c.expect("a1 a2 b1")
	c.end("b1")
	c.expect("a1 a2 b1 b2")
	c.end("b2")
	c.want("c1", 1)
	c.want("b3", 1)
	c.end("a2")
	c.expect("a1 a2 b1 b2 c1 a3")
	for _, name := range strings.Fields("a1 a3 c1 b3 a4") {
		c.end(name)
	}
	c.expectEmpty()
}

func TestWhatIsLargeIsNotOvertakenForEver(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 100, 100)
	c.want("a1", 60)
	c.want("b-large", 90)
	c.want("c-small", 10)
	if _, ok := c.TryAcquire("d", 10); ok {
		t.Error("what comes later goes first")
	}
	c.want("b-small", 10)
	c.expect("a1")
	c.end("a1")
	c.expect("a1 b-large c-small")
	c.end("c-small")
	c.expect("a1 b-large c-small b-small")
	c.end("b-large")
	c.end("b-small")
	c.expectEmpty()
}

func TestWhatExceedsALimitDelaysItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 10, 20)
	c.want("a-huge", 11)
	c.want("a1", 1)
	c.want("b1", 10)
	c.expect("b1")
	c.end("a-huge")
	c.end("b1")
	c.expect("b1 a1")
	c.end("a1")
	c.expectEmpty()
}

func TestWhoStopsWaitingMakesRoom(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 10, 10)
	c.want("a1", 5)
	c.want("b-large", 10)
	c.want("c1", 5)
	c.expect("a1")
	c.end("b-large")
	c.expect("a1 c1")
	c.end("a1")
	c.end("c1")
	c.expectEmpty()
}

func TestNothingCountsAsOne(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 2, 2)
	for _, name := range strings.Fields("a1 a2 a3") {
		c.want(name, 0)
	}
	c.expect("a1 a2")
}

func TestAcquireWaitsForATurnOrTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns[string](1, 1)
		release, err := turns.Acquire(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		wait := func(ctx context.Context, name string) {
			go func() {
				release, err := turns.Acquire(ctx, name, 1)
				if err != nil {
					got = append(got, fmt.Sprint(name, " ", errors.Is(err, context.Canceled)))
					return
				}
				got = append(got, name)
				release()
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, "gone")
		wait(t.Context(), "stays")
		if n := turns.Waiting(); n != 2 {
			t.Errorf("%d wait", n)
		}
		if _, ok := turns.TryAcquire("b", 1); ok || len(got) != 0 {
			t.Errorf("there is no room, and %v got some", got)
		}
		cancel()
		synctest.Wait()
		release()
		release()
		synctest.Wait()
		if want := []string{"gone true", "stays"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		release, ok := turns.TryAcquire("b", 1)
		if !ok {
			t.Fatal("there is room")
		}
		if release(); turns.used != 0 || len(turns.lines) != 0 {
			t.Errorf("left are %d, lines %v", turns.used, turns.lines)
		}
	})
}

// queues is Turns in the plainest form.
type queues struct {
	total, each int64
	used        map[string]int64
	waiting     map[string][]string
	amounts     map[string]int64
	turns       []string
	granted     map[string]bool
}

func (q *queues) sum() (n int64) {
	for _, used := range q.used {
		n += used
	}
	return n
}

func (q *queues) want(name string, amount int64) {
	key := name[:1]
	q.amounts[name] = amount
	q.waiting[key] = append(q.waiting[key], name)
	if !slices.Contains(q.turns, key) {
		q.turns = append(q.turns, key)
	}
	q.grant()
}

func (q *queues) end(name string) {
	key := name[:1]
	if q.granted[name] {
		q.used[key] -= q.amounts[name]
	}
	q.waiting[key] = slices.DeleteFunc(q.waiting[key], func(other string) bool { return other == name })
	q.turns = slices.DeleteFunc(q.turns, func(key string) bool { return len(q.waiting[key]) == 0 })
	q.grant()
}

func (q *queues) grant() {
	for {
		at := slices.IndexFunc(q.turns, func(key string) bool { return q.used[key]+q.amounts[q.waiting[key][0]] <= q.each })
		if at < 0 || q.sum()+q.amounts[q.waiting[q.turns[at]][0]] > q.total {
			return
		}
		key := q.turns[at]
		name := q.waiting[key][0]
		q.granted[name] = true
		q.used[key] += q.amounts[name]
		q.waiting[key] = q.waiting[key][1:]
		if q.turns = slices.Delete(q.turns, at, at+1); len(q.waiting[key]) > 0 {
			q.turns = append(q.turns, key)
		}
	}
}

// Turns grants what its plainest form does, and keeps nothing of who has left.
func TestTurnsGrantsWhatPlainQueuesDo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		c := newCrowd(t, 10, 1+random.Int64N(10))
		q := &queues{
			total: c.total, each: c.each, used: map[string]int64{}, waiting: map[string][]string{}, amounts: map[string]int64{}, granted: map[string]bool{},
		}
		var there []string
		for i := range 400 {
			if len(there) > 0 && random.IntN(20) < len(there) {
				at := random.IntN(len(there))
				name := there[at]
				there = slices.Delete(there, at, at+1)
				c.end(name)
				q.end(name)
			} else {
				name := fmt.Sprint(string(rune('a'+random.IntN(5))), i)
				amount := 1 + random.Int64N(5)
				there = append(there, name)
				c.want(name, amount)
				q.want(name, amount)
			}
			for _, name := range there {
				if got := slices.Contains(c.order, name); got != q.granted[name] {
					t.Fatalf("seed %d, step %d: %s has what it wants: %t", seed, i, name, got)
				}
			}
			if c.used != q.sum() || c.used > c.total {
				t.Fatalf("seed %d, step %d: %d are used, want %d", seed, i, c.used, q.sum())
			}
		}
		for _, name := range there {
			c.end(name)
		}
		c.expectEmpty()
	}
}

// Whoever comes and stops waiting in whatever order, no limit is exceeded, and nobody is forgotten.
func TestTurnsUnderConcurrency(t *testing.T) {
	t.Parallel()
	turns := NewTurns[int](5, 2)
	var all sync.WaitGroup
	for worker := range 40 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(4, uint64(worker)))
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(3) == 0 {
					// Races with being granted a turn.
					go cancel()
				}
				key := random.IntN(1 + worker%7)
				release, err := turns.Acquire(ctx, key, 1+random.Int64N(2))
				if err == nil {
					turns.mu.Lock()
					if turns.used > 5 || turns.lines[key].used > 2 {
						t.Errorf("%d are used, %d by the key", turns.used, turns.lines[key].used)
					}
					turns.mu.Unlock()
					release()
					release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if turns.used != 0 || len(turns.lines) != 0 || turns.turns.Len() != 0 {
		t.Errorf("left are %d, lines %v", turns.used, turns.lines)
	}
}
