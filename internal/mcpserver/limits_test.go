package mcpserver

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func TestLimitBoundsUsersTenantsAndAll(t *testing.T) {
	t.Parallel()
	l := newLimit(4, 3, 2)
	reserve := func(user, tenant string, want bool) *reservation {
		t.Helper()
		r, ok := l.reserve(principal{user, tenant}, 1)
		if ok != want {
			t.Fatalf("a reservation of %s in %s: %t", user, tenant, ok)
		}
		return r
	}
	first := reserve("a", "one", true)
	reserve("a", "one", true)
	reserve("a", "one", false)
	reserve("b", "one", true)
	reserve("b", "one", false)
	reserve("c", "two", true)
	reserve("c", "two", false)
	first.release()
	first.release()
	reserve("c", "two", true)
	reserve("b", "one", false)
}

// A tenant that creates any number of users leaves room for others.
func TestOneTenantCannotTakeEverything(t *testing.T) {
	t.Parallel()
	l := newLimit(10, 5, 1)
	taken := 0
	for i := range 100 {
		if _, ok := l.reserve(principal{string(rune('a' + i)), "greedy"}, 1); ok {
			taken++
		}
	}
	if _, ok := l.reserve(principal{"other", "other"}, 1); taken != 5 || !ok {
		t.Errorf("the tenant has %d, another gets one: %t", taken, ok)
	}
}

func TestTenantsWithoutABoundOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := newLimit(3, 0, 3)
	if _, ok := l.reserve(principal{"a", ""}, 3); !ok {
		t.Error("a single user can't use everything")
	}
}

func TestReservationsShrink(t *testing.T) {
	t.Parallel()
	l := newLimit(10, 10, 10)
	p := principal{"a", "one"}
	r, _ := l.reserve(p, 8)
	r.shrink(9)
	if _, ok := l.reserve(p, 3); ok {
		t.Error("a reservation grew smaller by shrinking to more")
	}
	r.shrink(2)
	if _, ok := l.reserve(p, 8); !ok {
		t.Error("shrinking returned nothing")
	}
	r.release()
	if l.used != 8 {
		t.Errorf("%d are in use", l.used)
	}
}

// Whatever the order, nothing leaks and no bound is exceeded.
func TestLimitUnderConcurrency(t *testing.T) {
	t.Parallel()
	l := newLimit(20, 12, 7)
	var running sync.WaitGroup
	for i := range 16 {
		running.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			p := principal{string(rune('a' + i%5)), string(rune('A' + i%2))}
			for range 500 {
				r, ok := l.reserve(p, 1+random.Int64N(4))
				if !ok {
					continue
				}
				l.mu.Lock()
				if l.used > 20 || l.byTenant[p.tenant] > 12 || l.byUser[p.user] > 7 {
					t.Errorf("in use: %d, by the tenant %d, by the user %d", l.used, l.byTenant[p.tenant], l.byUser[p.user])
				}
				l.mu.Unlock()
				r.shrink(random.Int64N(3))
				r.release()
			}
		})
	}
	running.Wait()
	if l.used != 0 || len(l.byTenant) != 0 || len(l.byUser) != 0 {
		t.Errorf("left: %d, %v, %v", l.used, l.byTenant, l.byUser)
	}
}

func TestEndingASessionCancelsItsCallsOnly(t *testing.T) {
	t.Parallel()
	f, cancelled := &inFlight{}, map[string]int{}
	f.add("a", func() { cancelled["a1"]++ })
	remove := f.add("a", func() { cancelled["a2"]++ })
	f.add("b", func() { cancelled["b"]++ })
	remove()
	f.cancelAll("a")
	f.cancelAll("none")
	if cancelled["a1"] != 1 || cancelled["a2"] != 0 || cancelled["b"] != 0 {
		t.Errorf("cancelled: %v", cancelled)
	}
}
