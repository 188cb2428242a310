package fair

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestACounterBoundsEachLevelOfKeysAndAll(t *testing.T) {
	t.Parallel()
	c := NewCounter[string](4, 3, 2)
	acquire := func(tenant, user string, want bool) *Share[string] {
		t.Helper()
		s, ok := c.Acquire(1, tenant, user)
		if ok != want {
			t.Fatalf("%s in %s got a share: %t", user, tenant, ok)
		}
		return s
	}
	first := acquire("one", "a", true)
	acquire("one", "a", true)
	acquire("one", "a", false)
	acquire("one", "b", true)
	acquire("one", "b", false)
	acquire("two", "c", true)
	acquire("two", "c", false)
	first.Release()
	first.Release()
	acquire("two", "c", true)
	acquire("one", "b", false)
}

// A key that has any number of keys of the next level leaves room for others.
func TestOneKeyCannotTakeEverything(t *testing.T) {
	t.Parallel()
	c := NewCounter[string](10, 5, 1)
	taken := 0
	for i := range 100 {
		if _, ok := c.Acquire(1, "greedy", fmt.Sprint(i)); ok {
			taken++
		}
	}
	if _, ok := c.Acquire(1, "other", "other"); taken != 5 || !ok {
		t.Errorf("the key has %d, another gets one: %t", taken, ok)
	}
}

func TestSharesShrinkAndNeverGrow(t *testing.T) {
	t.Parallel()
	c := NewCounter[string](10, 10)
	s, _ := c.Acquire(8, "a")
	if s.Shrink(9); c.Used() != 8 {
		t.Errorf("%d are used", c.Used())
	}
	s.Shrink(2)
	if _, ok := c.Acquire(8, "a"); !ok {
		t.Error("shrinking returned nothing")
	}
	if s.Release(); c.Used() != 8 {
		t.Errorf("%d are used", c.Used())
	}
}

func TestNoAmountExceedsALimitByOverflow(t *testing.T) {
	t.Parallel()
	c := NewCounter[string](Unbounded, 10)
	_, _ = c.Acquire(1, "a")
	for _, amount := range []int64{-1, math.MinInt64, 10, math.MaxInt64 - 1, math.MaxInt64} {
		if _, ok := c.Acquire(amount, "a"); ok {
			t.Errorf("got %d", amount)
		}
	}
}

// A counter agrees with one that adds up all shares each time.
func TestACounterCountsAsASumDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := NewCounter[int](20, 12, 7)
		var shares []*Share[int]
		sum := func(of func(*Share[int]) bool) (n int64) {
			for _, s := range shares {
				if of(s) {
					n += s.amount
				}
			}
			return n
		}
		for range 500 {
			if len(shares) > 0 && random.IntN(2) == 0 {
				shares[random.IntN(len(shares))].Shrink(random.Int64N(4))
				continue
			}
			amount, tenant, user := random.Int64N(5), random.IntN(3), random.IntN(5)
			want := sum(func(*Share[int]) bool { return true })+amount <= 20 &&
				sum(func(s *Share[int]) bool { return s.keys[0] == tenant })+amount <= 12 &&
				sum(func(s *Share[int]) bool { return s.keys[1] == user })+amount <= 7
			s, ok := c.Acquire(amount, tenant, user)
			if ok != want {
				t.Fatalf("seed %d: got %d: %t", seed, amount, ok)
			}
			if ok {
				shares = append(shares, s)
			}
		}
		for _, s := range shares {
			s.Release()
		}
		expectNothingCounted(t, c)
	}
}

func TestACounterUnderConcurrency(t *testing.T) {
	t.Parallel()
	c := NewCounter[int](20, 12, 7)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			for range 500 {
				s, ok := c.Acquire(1+random.Int64N(4), i%2, i%5)
				if !ok {
					continue
				}
				c.mu.Lock()
				if c.used > 20 || c.by[0][i%2] > 12 || c.by[1][i%5] > 7 {
					t.Errorf("used: %d, by keys: %v", c.used, c.by)
				}
				c.mu.Unlock()
				s.Shrink(random.Int64N(3))
				s.Release()
			}
		})
	}
	all.Wait()
	expectNothingCounted(t, c)
}

func expectNothingCounted[K comparable](t *testing.T, c *Counter[K]) {
	t.Helper()
	if c.used != 0 {
		t.Errorf("%d are used", c.used)
	}
	for level, keys := range c.by {
		if len(keys) != 0 {
			t.Errorf("level %d remembers %v", level, keys)
		}
	}
}
