package queue

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestAFloodDelaysItsOwnSender(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 5} {
		r := newRecorder()
		for n := range 100 {
			r.admit(limit, newEntry("flood", n))
		}
		r.admit(limit, newEntry("other", 1000))
		ended := 0
		for n := 0; !slices.Contains(r.woken, "other-1000"); n++ {
			r.release(newEntry("flood", n))
			ended++
		}
		if ended > 2 {
			t.Errorf("limit %d: the other requester waited for %d calls to end", limit, ended)
		}
	}
}

func TestTwoFloodsShareTheSlots(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	for _, requester := range []string{"a", "b"} {
		for n := range 50 {
			r.admit(4, newEntry(requester, n))
		}
	}
	admitted := map[string]int{}
	running := []string{"a-0", "a-1", "a-2", "a-3"}
	for range 40 {
		first := running[0]
		r.woken = nil
		r.Release(types.NamespacedName{Namespace: "ns", Name: first})
		running = append(running[1:], r.woken...)
		for _, name := range r.woken {
			admitted[name[:1]]++
		}
	}
	if admitted["a"] != 20 || admitted["b"] != 20 {
		t.Errorf("admitted %v", admitted)
	}
}

func TestTheRequesterWithTheFewestRunningCallsGoesNext(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	for n := range 3 {
		r.SetRunning(env, newEntry("a", n))
	}
	r.SetRunning(env, newEntry("b", 0))
	r.admit(4, newEntry("a", 3))
	r.admit(4, newEntry("b", 4))
	if got := r.release(newEntry("a", 0)); !slices.Equal(got, []string{"b-4"}) {
		t.Errorf("woken %q, though a has two running calls and b one", got)
	}
}

func TestACallThatAsksLateCostsItsRequesterNoWaitingTime(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.admit(1, newEntry("x", 0))
	r.admit(1, newEntry("x", 1))
	r.admit(1, newEntry("a", 5))
	r.release(newEntry("x", 0))
	r.admit(1, newEntry("b", 1))
	r.admit(1, newEntry("a", 2))
	if got := r.release(newEntry("x", 1)); !slices.Equal(got, []string{"a-2"}) {
		t.Errorf("woken %q, though a waits longer", got)
	}
}

// Three requesters with one slot take turns, however early one of them queued its calls.
func TestOfEqualRequestersTheOneThatWaitedLongestGoesNext(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	running := newEntry("a", 0)
	r.admit(1, running)
	for n := 1; n < 4; n++ {
		r.admit(1, newEntry("a", n))
	}
	for n := 4; n < 7; n++ {
		r.admit(1, newEntry("b", n))
		r.admit(1, newEntry("c", n))
	}
	var order []string
	for range 9 {
		woken := r.release(running)
		if len(woken) != 1 {
			t.Fatalf("woken %q", woken)
		}
		order = append(order, woken[0])
		running = Holder{Name: types.NamespacedName{Namespace: "ns", Name: woken[0]}}
	}
	want := []string{"a-1", "b-4", "c-4", "a-2", "b-5", "c-5", "a-3", "b-6", "c-6"}
	if !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
}

// Whoever asks one call after the other, and is idle in between, doesn't lose its share to one that has a long line.
func TestARequesterThatWasIdleWaitsForOneCallOfEachOther(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	for n := range 50 {
		r.admit(1, newEntry("flood", n))
	}
	next := 0
	for round := range 10 {
		single := newEntry("single", 100+round)
		r.admit(1, single)
		for ended := 0; !slices.Contains(r.woken, single.Name.Name); ended++ {
			if ended > 2 {
				t.Fatalf("round %d: it waited for %d calls", round, ended)
			}
			r.release(newEntry("flood", next))
			next++
		}
		if woken := r.release(single); !slices.Equal(woken, []string{fmt.Sprintf("flood-%d", next)}) {
			t.Fatalf("round %d: woken %q", round, woken)
		}
	}
}
