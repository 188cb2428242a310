package queue

import (
	"slices"
	"testing"
)

func TestCallsOfAnEarlierProcessCount(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.SetRunning(env, newEntry("a", 0))
	r.SetRunning(env, newEntry("a", 1))
	r.SetRunning(env, newEntry("a", 1))
	if r.admit(2, newEntry("b", 2)) {
		t.Error("calls of an earlier process don't count")
	}
	if !r.admit(2, newEntry("a", 1)) {
		t.Error("a call of an earlier process lost its slot")
	}
	if got := r.release(newEntry("a", 0)); !slices.Equal(got, []string{"b-2"}) {
		t.Errorf("woken %q", got)
	}
}

func TestCallsThatWaitedBeforeKeepTheirOrderWhicheverAsksFirst(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	for _, n := range []int{3, 1, 2, 2} {
		r.SetWaiting(env, newEntry("a", n))
	}
	if r.admit(1, newEntry("a", 3)) || !slices.Equal(r.woken, []string{"a-1"}) {
		t.Errorf("woken %q", r.woken)
	}
	if !r.admit(1, newEntry("a", 1)) {
		t.Error("the call that was woken isn't admitted")
	}
}

// Nobody is let in before it is known how many may run, and nobody waits for that: the environment may be gone.
func TestACallThatWaitedBeforeAsksWhileTheLimitIsNotKnown(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	running, waiting := newEntry("a", 0), newEntry("a", 1)
	r.SetRunning(env, running)
	r.SetWaiting(env, waiting)
	if woken := r.release(running); len(woken) != 0 || r.IsWaiting(waiting.Name, waiting.UID) {
		t.Errorf("woken %q, and it waits: %t", woken, r.IsWaiting(waiting.Name, waiting.UID))
	}
	r.SetLimit(env, 1)
	if !slices.Equal(r.woken, []string{"a-1"}) {
		t.Errorf("woken %q", r.woken)
	}
	r.Release(waiting.Name)
	r.expectEmpty(t)
}
