package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// cluster is what the API knows of an environment's calls, while random events happen to them.
type cluster struct {
	*Queues
	random           *rand.Rand
	limit            int
	second           int
	running, waiting map[string]Holder
}

func newCluster(seed uint64) *cluster {
	random := rand.New(rand.NewPCG(seed, 1))
	c := &cluster{
		random: random, limit: 1 + random.IntN(4),
		running: map[string]Holder{}, waiting: map[string]Holder{},
	}
	c.Queues = New(PendingOptions{}, c.wake)
	return c
}

func (c *cluster) tick() time.Time {
	c.second++
	return time.Unix(int64(c.second), 0)
}

func (c *cluster) wake(call types.NamespacedName) {
	entry, ok := c.waiting[call.Name]
	if !ok {
		return
	}
	delete(c.waiting, call.Name)
	c.start(entry)
}

func (c *cluster) start(entry Holder) {
	c.running[entry.Name.Name] = entry
}

// create has a call created and checked, which denies some of them.
func (c *cluster) create() {
	entry := newEntry(fmt.Sprint("requester", c.random.IntN(5)), int(c.tick().Unix()))
	if denied := c.random.IntN(4) == 0; denied {
		return
	}
	// An admitted call is woken only when it had to wait, and starts by this answer otherwise.
	c.waiting[entry.Name.Name] = entry
	if c.Admit(env, c.limit, entry) {
		c.wake(entry.Name)
	}
}

// end has some call end, or go away while it waits.
func (c *cluster) end() {
	from := c.running
	if c.random.IntN(3) == 0 {
		from = c.waiting
	}
	if len(from) == 0 {
		return
	}
	c.tick()
	names := slices.Sorted(maps.Keys(from))
	entry := from[names[c.random.IntN(len(names))]]
	delete(from, entry.Name.Name)
	c.Release(entry.Name)
}

func (c *cluster) step() {
	if c.random.IntN(2) == 0 {
		c.create()
	} else {
		c.end()
	}
}

// restart replaces the queues by new ones, and has the calls asked for again in a random order.
func (c *cluster) restart(t *testing.T) {
	t.Helper()
	c.Queues = New(PendingOptions{}, c.wake)
	var all []Holder
	for _, entry := range c.running {
		c.SetRunning(env, entry)
		all = append(all, entry)
	}
	for _, entry := range c.waiting {
		c.SetWaiting(env, entry)
		all = append(all, entry)
	}
	slices.SortFunc(all, compareCreation)
	c.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, entry := range all {
		_, runs := c.running[entry.Name.Name]
		if admitted := c.Admit(env, c.limit, entry); admitted != runs {
			t.Fatalf("after the restart %s is admitted: %t; it runs: %t", entry.Name.Name, admitted, runs)
		}
	}
}

// Whatever happens in whatever order, also to a process that is replaced again and again: the limit holds, no slot stays free, and in the
// end nothing is left.
func TestAnyOrderOfEventsKeepsTheLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		c := newCluster(seed)
		for range 400 {
			c.step()
			if seed%2 == 1 && c.random.IntN(10) == 0 {
				c.restart(t)
			}
			running, waiting := c.count()
			if running != len(c.running) || waiting != len(c.waiting) {
				t.Fatalf("seed %d: %d run and %d wait, counted %d and %d", seed, len(c.running), len(c.waiting), running, waiting)
			}
			if running > c.limit || (running < c.limit && waiting > 0) {
				t.Fatalf("seed %d: %d run and %d wait, the limit is %d", seed, running, waiting, c.limit)
			}
		}
		for len(c.running)+len(c.waiting) > 0 {
			c.end()
		}
		c.expectEmpty(t)
	}
}
