package mcpserver

import "testing"

func TestQuota(t *testing.T) {
	t.Parallel()
	q := &quota{total: 3, each: 2}
	take := func(user string, want bool) func() {
		t.Helper()
		giveBack, ok := q.take(user)
		if ok != want {
			t.Fatalf("%s may take one more: %t", user, ok)
		}
		return giveBack
	}
	first := take("a", true)
	take("a", true)
	take("a", false)
	take("b", true)
	take("c", false)
	first()
	first()
	take("c", true)
	take("b", false)
}

func TestEndingASessionEndsItsCallsOnly(t *testing.T) {
	t.Parallel()
	f, ended := &inFlight{}, map[string]int{}
	f.add("a", func() { ended["a1"]++ })
	forget := f.add("a", func() { ended["a2"]++ })
	f.add("b", func() { ended["b"]++ })
	forget()
	f.end("a")
	f.end("none")
	if ended["a1"] != 1 || ended["a2"] != 0 || ended["b"] != 0 {
		t.Errorf("ended: %v", ended)
	}
}
