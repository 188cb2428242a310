package limits

import (
	"testing"

	"toolcall.dev/operator/internal/fair"
)

func TestLimitBoundsUsersTenantsAndAll(t *testing.T) {
	t.Parallel()
	l := New(4, 3, 2)
	reserve := func(user, tenant string, want bool) *fair.Share[string] {
		t.Helper()
		r, ok := l.Reserve(Principal{user, tenant}, 1)
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
	l := New(3, 0, 3)
	if _, ok := l.Reserve(Principal{"a", ""}, 3); !ok {
		t.Error("a single user can't use everything")
	}
}
