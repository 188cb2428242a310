package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// turnsOf is a Turns, and the names of the calls that it wakes.
func turnsOf() (*Turns, *[]string) {
	var woken []string
	return NewTurns(func(call types.NamespacedName) { woken = append(woken, call.Name) }), &woken
}

func (t *Turns) addOne(session string, sequence int64, background bool) string {
	name := fmt.Sprint("c", sequence)
	t.Add(named(session), named(name), Turn{UID: types.UID(name + "-uid"), Sequence: sequence, Background: background})
	return name
}

func TestCallsTakeTurnsInTheOrderOfTheirCreation(t *testing.T) {
	t.Parallel()
	turns, woken := turnsOf()
	for _, sequence := range []int64{30, 10, 20} {
		turns.addOne("s", sequence, false)
	}
	turns.addOne("s", 5, true)
	turns.addOne("another", 1, false)
	for name, want := range map[string]int{"c10": 0, "c20": 1, "c30": 2, "c5": 0, "c1": 0, "unknown": 0} {
		if got := turns.Ahead(named(name)); got != want {
			t.Errorf("%d are ahead of %s, want %d", got, name, want)
		}
	}
	turns.Wake(named("s"), 2, 2)
	if want := []string{"c10", "c20", "c5"}; !slices.Equal(*woken, want) {
		t.Errorf("woken are %q, want %q", *woken, want)
	}
	if n := turns.Waiting(); n != 5 {
		t.Errorf("%d wait", n)
	}
}

func TestACallThatIsHandedOverWaitsNoMore(t *testing.T) {
	t.Parallel()
	turns, woken := turnsOf()
	turns.addOne("s", 1, false)
	turns.addOne("s", 2, false)
	turns.Hand(named("c1"), "s-uid")
	if turns.Ahead(named("c2")) != 0 || turns.HandedIn(named("c1"), "c1-uid") != "s-uid" || turns.HandedIn(named("c1"), "another") != "" || turns.Waiting() != 1 {
		t.Error("it waits, or isn't known as handed over")
	}
	turns.Wake(named("s"), 16, 16)
	if !slices.Equal(*woken, []string{"c2"}) {
		t.Errorf("woken are %q", *woken)
	}
	// It didn't arrive: the cache shows it with another resource version by now.
	turns.Add(named("s"), named("c1"), Turn{UID: "c1-uid", Sequence: 9})
	if turns.Ahead(named("c1")) != 0 || turns.Ahead(named("c2")) != 1 || turns.HandedIn(named("c1"), "c1-uid") != "" {
		t.Error("a call that didn't arrive has lost its place")
	}
}

func TestACallOfTheSameNameTakesATurnOfItsOwn(t *testing.T) {
	t.Parallel()
	turns, _ := turnsOf()
	turns.addOne("s", 1, false)
	turns.addOne("s", 2, false)
	turns.Add(named("s"), named("c1"), Turn{UID: "again", Sequence: 3})
	if turns.Ahead(named("c1")) != 1 || turns.Waiting() != 2 {
		t.Error("it has the place of the one before")
	}
	turns.Hand(named("c1"), "s-uid")
	turns.Add(named("other"), named("c1"), Turn{UID: "third", Sequence: 4})
	if turns.HandedIn(named("c1"), "third") != "" || turns.Waiting() != 2 {
		t.Error("it counts as handed over")
	}
}

// A model of one slice that is sorted anew each time says the same, whatever happens; and nothing is left at the end.
func TestTurnsAgreeWithAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		turns, _ := turnsOf()
		type place struct {
			name     string
			sequence int64
		}
		var model []place
		for range 300 {
			name := fmt.Sprint("c", random.IntN(40))
			at := slices.IndexFunc(model, func(p place) bool { return p.name == name })
			switch {
			case at < 0:
				sequence := random.Int64N(1000)
				turns.Add(named("s"), named(name), Turn{UID: types.UID(name), Sequence: sequence})
				model = append(model, place{name, sequence})
			case random.IntN(2) == 0:
				turns.Hand(named(name), "s-uid")
				turns.Forget(named(name))
				model = slices.Delete(model, at, at+1)
			default:
				turns.Forget(named(name))
				model = slices.Delete(model, at, at+1)
			}
			slices.SortFunc(model, func(a, b place) int {
				return compareTurns(&turnOfCall{Turn: Turn{UID: types.UID(a.name), Sequence: a.sequence}}, &turnOfCall{Turn: Turn{UID: types.UID(b.name), Sequence: b.sequence}})
			})
			for i, p := range model {
				if got := turns.Ahead(named(p.name)); got != i {
					t.Fatalf("seed %d: %d are ahead of %s, want %d", seed, got, p.name, i)
				}
			}
		}
		for _, p := range model {
			turns.Forget(named(p.name))
		}
		if len(turns.calls)+len(turns.lines) > 0 {
			t.Errorf("seed %d: %d calls and %d lines are left", seed, len(turns.calls), len(turns.lines))
		}
	}
}

// addTurns has calls wait in a session, in their order.
func addTurns(t *Turns, names ...string) {
	for i, name := range names {
		t.Add(named("s"), named(name), Turn{UID: types.UID(name), Sequence: int64(i)})
	}
}

func TestACallThatDidNotArriveIsNotOvertaken(t *testing.T) {
	t.Parallel()
	turns := NewTurns(nil)
	addTurns(turns, "a", "b", "c")
	turns.Hand(named("a"), "s1")
	turns.Hand(named("b"), "s1")
	if turns.Ahead(named("c")) != 0 {
		t.Fatal("calls that were handed over are ahead of others")
	}
	turns.Return(named("s"), "s1", func(call types.UID) bool { return call == "a" })
	if ahead := turns.Ahead(named("c")); ahead != 1 {
		t.Errorf("%d calls are ahead", ahead)
	}
	if turns.HandedIn(named("a"), "a") != "s1" || turns.HandedIn(named("b"), "b") != "" {
		t.Error("it isn't known which call arrived")
	}
	if diff := cmp.Diff([]types.NamespacedName{named("b"), named("c")}, turns.first(named("s"), 3, 3)); diff != "" {
		t.Error(diff)
	}
}

// What was handed over in a session that had the name before, that session's process alone knows.
func TestACallOfASessionThatIsGoneDoesNotReturn(t *testing.T) {
	t.Parallel()
	turns := NewTurns(nil)
	addTurns(turns, "a")
	turns.Hand(named("a"), "s1")
	turns.Return(named("s"), "s2", func(types.UID) bool { return false })
	turns.Return(named("another"), "s1", func(types.UID) bool { return false })
	if turns.HandedIn(named("a"), "a") != "s1" {
		t.Error("the call waits again")
	}
}

func TestTurnsForgetWhatIsGone(t *testing.T) {
	t.Parallel()
	turns := NewTurns(nil)
	addTurns(turns, "a", "b", "c")
	turns.Hand(named("a"), "s1")
	turns.Hand(named("b"), "s1")
	turns.Return(named("s"), "s1", func(call types.UID) bool { return call == "a" })
	for _, name := range []string{"a", "b", "c"} {
		turns.Forget(named(name))
	}
	if len(turns.calls)+len(turns.lines) > 0 {
		t.Errorf("left are %v, %v", turns.calls, turns.lines)
	}
}

// Nobody waits behind a call that its session doesn't take, also while the end of that call can't be written.
func TestACallThatIsExcludedHasNoPlaceInTheLine(t *testing.T) {
	t.Parallel()
	turns, woken := turnsOf()
	addTurns(turns, "refused", "own")
	turns.Exclude(named("refused"))
	turns.Add(named("s"), named("refused"), Turn{UID: "refused", Sequence: 0})
	if turns.Ahead(named("own")) != 0 || turns.Waiting() != 1 {
		t.Error("another call waits for it")
	}
	turns.Wake(named("s"), 2, 2)
	if !slices.Equal(*woken, []string{"own"}) {
		t.Errorf("woken are %q", *woken)
	}
	turns.Forget(named("refused"))
	turns.Forget(named("own"))
	if len(turns.calls)+len(turns.lines) > 0 {
		t.Error("something is left")
	}
}
