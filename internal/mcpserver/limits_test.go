package mcpserver

import (
	"testing"

	"toolcall.dev/operator/internal/fair"
)

func TestLimitBoundsUsersTenantsAndAll(t *testing.T) {
	t.Parallel()
	l := newLimit(4, 3, 2)
	reserve := func(user, tenant string, want bool) *fair.Share[string] {
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
	first.Release()
	first.Release()
	reserve("c", "two", true)
	reserve("b", "one", false)
}

func TestTenantsWithoutABoundOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := newLimit(3, 0, 3)
	if _, ok := l.reserve(principal{"a", ""}, 3); !ok {
		t.Error("a single user can't use everything")
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
