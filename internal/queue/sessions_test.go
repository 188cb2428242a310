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

// sessionQueue is one, and the names of the calls that it wakes.
func sessionQueue() (*SessionQueue, *[]string) {
	var woken []string
	return NewSessionQueue(func(call types.NamespacedName) { woken = append(woken, call.Name) }), &woken
}

func (t *SessionQueue) addOne(session string, sequence int64, background bool) string {
	name := fmt.Sprint("c", sequence)
	t.Add(named(session), named(name), Position{UID: types.UID(name + "-uid"), Sequence: sequence, Background: background})
	return name
}

// ahead is how many calls come before one, where all that were handed over have arrived.
func ahead(q *SessionQueue, call types.NamespacedName) int {
	return q.Ahead(call, "", func(types.UID) bool { return true })
}

func handedIn(q *SessionQueue, call types.NamespacedName, uid types.UID) types.UID {
	at, _ := q.Place(call, uid)
	return at.HandedIn
}

func queuedAt(uid string, sequence int64) *queuedCall {
	return &queuedCall{Place: Place{Position: Position{UID: types.UID(uid), Sequence: sequence}}}
}

func waitingIn(q *SessionQueue) (n int) {
	for _, waiting := range q.Waiting() {
		n += waiting
	}
	return n
}

func TestCallsTakeTurnsInTheOrderOfTheirCreation(t *testing.T) {
	t.Parallel()
	q, woken := sessionQueue()
	for _, sequence := range []int64{30, 10, 20} {
		q.addOne("s", sequence, false)
	}
	q.addOne("s", 5, true)
	q.addOne("another", 1, false)
	for name, want := range map[string]int{"c10": 0, "c20": 1, "c30": 2, "c5": 0, "c1": 0, "unknown": 0} {
		if got := ahead(q, named(name)); got != want {
			t.Errorf("%d are ahead of %s, want %d", got, name, want)
		}
	}
	q.Wake(named("s"), true, true)
	q.Wake(named("s"), false, false)
	if want := []string{"c10", "c5"}; !slices.Equal(*woken, want) {
		t.Errorf("woken are %q, want %q", *woken, want)
	}
	if diff := cmp.Diff(map[types.NamespacedName]int{named("s"): 4, named("another"): 1}, q.Waiting()); diff != "" {
		t.Errorf("calls that wait, by session:\n%s", diff)
	}
}

func TestACallThatIsHandedOverWaitsNoMore(t *testing.T) {
	t.Parallel()
	q, woken := sessionQueue()
	q.addOne("s", 1, false)
	q.addOne("s", 2, false)
	q.Hand(named("c1"), "s-uid")
	if ahead(q, named("c2")) != 0 || handedIn(q, named("c1"), "c1-uid") != "s-uid" || handedIn(q, named("c1"), "another") != "" || waitingIn(q) != 1 {
		t.Error("it waits, or isn't known as handed over")
	}
	q.Wake(named("s"), true, true)
	if !slices.Equal(*woken, []string{"c2"}) {
		t.Errorf("woken are %q", *woken)
	}
	// It didn't arrive: the cache shows it with another resource version by now.
	q.Add(named("s"), named("c1"), Position{UID: "c1-uid", Sequence: 9})
	if ahead(q, named("c1")) != 0 || ahead(q, named("c2")) != 1 || handedIn(q, named("c1"), "c1-uid") != "" {
		t.Error("a call that didn't arrive has lost its place")
	}
}

func TestACallOfTheSameNameTakesATurnOfItsOwn(t *testing.T) {
	t.Parallel()
	q, _ := sessionQueue()
	q.addOne("s", 1, false)
	q.addOne("s", 2, false)
	q.Add(named("s"), named("c1"), Position{UID: "again", Sequence: 3})
	if ahead(q, named("c1")) != 1 || waitingIn(q) != 2 {
		t.Error("it has the place of the one before")
	}
	q.Hand(named("c1"), "s-uid")
	q.Add(named("other"), named("c1"), Position{UID: "third", Sequence: 4})
	if handedIn(q, named("c1"), "third") != "" || waitingIn(q) != 2 {
		t.Error("it counts as handed over")
	}
}

// Only the first of a line is woken, and the next one when that has left it: nobody is overtaken by a call whose pass is faster.
func TestCallsAreWokenOneAfterAnother(t *testing.T) {
	t.Parallel()
	q, woken := sessionQueue()
	addTurns(q, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		if n := ahead(q, named(name)); n != 0 {
			t.Errorf("%d are ahead of %s", n, name)
		}
		q.Wake(named("s"), true, true)
		q.Hand(named(name), "s-uid")
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(*woken, want) {
		t.Errorf("woken are %q, want %q", *woken, want)
	}
}

// Nobody else would look again at a call that waited behind one which was replaced before anybody saw that it was gone.
func TestWhoWaitsBehindAReplacedCallIsWoken(t *testing.T) {
	t.Parallel()
	q, woken := sessionQueue()
	addTurns(q, "first", "next")
	q.Add(named("s"), named("first"), Position{UID: "again", Sequence: 9})
	if want := []string{"next"}; !slices.Equal(*woken, want) {
		t.Errorf("woken are %q, want %q", *woken, want)
	}
}

// A model of one slice that is sorted anew each time says the same, whatever happens; and nothing is left at the end.
func TestTurnsAgreeWithAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		q, _ := sessionQueue()
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
				q.Add(named("s"), named(name), Position{UID: types.UID(name), Sequence: sequence})
				model = append(model, place{name, sequence})
			case random.IntN(2) == 0:
				q.Hand(named(name), "s-uid")
				q.Forget(named(name))
				model = slices.Delete(model, at, at+1)
			default:
				q.Forget(named(name))
				model = slices.Delete(model, at, at+1)
			}
			slices.SortFunc(model, func(a, b place) int {
				return comparePositions(queuedAt(a.name, a.sequence), queuedAt(b.name, b.sequence))
			})
			for i, p := range model {
				if got := ahead(q, named(p.name)); got != i {
					t.Fatalf("seed %d: %d are ahead of %s, want %d", seed, got, p.name, i)
				}
			}
		}
		for _, p := range model {
			q.Forget(named(p.name))
		}
		if len(q.calls)+len(q.lines) > 0 {
			t.Errorf("seed %d: %d calls and %d lines are left", seed, len(q.calls), len(q.lines))
		}
	}
}

// addTurns has calls wait in a session, in their order.
func addTurns(t *SessionQueue, names ...string) {
	for i, name := range names {
		t.Add(named("s"), named(name), Position{UID: types.UID(name), Sequence: int64(i)})
	}
}

func TestACallThatDidNotArriveIsNotOvertaken(t *testing.T) {
	t.Parallel()
	q := NewSessionQueue(nil)
	addTurns(q, "a", "b", "c")
	q.Hand(named("a"), "s1")
	q.Hand(named("b"), "s1")
	if ahead(q, named("c")) != 0 {
		t.Fatal("calls that were handed over are ahead of others")
	}
	has := func(call types.UID) bool { return call == "a" }
	if n := q.Ahead(named("c"), "s1", has); n != 1 {
		t.Errorf("%d calls are ahead", n)
	}
	if handedIn(q, named("a"), "a") != "s1" || handedIn(q, named("b"), "b") != "s1" {
		t.Error("a question changed who was handed over")
	}
	// It is found out that the call didn't arrive.
	q.Add(named("s"), named("b"), Position{UID: "b", Sequence: 9})
	if at, ok := q.Place(named("b"), "b"); !ok || at.Sequence != 1 || handedIn(q, named("b"), "b") != "" || q.Ahead(named("c"), "s1", has) != 1 {
		t.Errorf("the call has place %+v again", at)
	}
	if diff := cmp.Diff([]types.NamespacedName{named("b")}, q.first(named("s"), true, true)); diff != "" {
		t.Error(diff)
	}
}

// What was handed over in a session that had the name before, that session's process alone knows.
func TestACallOfASessionThatIsGoneDoesNotReturn(t *testing.T) {
	t.Parallel()
	q := NewSessionQueue(nil)
	addTurns(q, "a", "b")
	q.Hand(named("a"), "s1")
	never := func(types.UID) bool { return false }
	if q.Ahead(named("b"), "s2", never) != 0 || q.Ahead(named("b"), "s1", never) != 1 {
		t.Error("the call waits again")
	}
	if handedIn(q, named("a"), "a") != "s1" {
		t.Error("a call that was handed over has a place in the line")
	}
}

func TestTurnsForgetWhatIsGone(t *testing.T) {
	t.Parallel()
	q := NewSessionQueue(nil)
	addTurns(q, "a", "b", "c")
	q.Hand(named("a"), "s1")
	q.Hand(named("b"), "s1")
	for _, name := range []string{"a", "b", "c"} {
		q.Forget(named(name))
	}
	if len(q.calls)+len(q.lines) > 0 {
		t.Errorf("left are %v, %v", q.calls, q.lines)
	}
}

// Nobody waits behind a call that its session doesn't take, also while the end of that call can't be written.
func TestACallThatIsExcludedHasNoPlaceInTheLine(t *testing.T) {
	t.Parallel()
	q, woken := sessionQueue()
	addTurns(q, "refused", "own")
	q.Exclude(named("refused"))
	if ahead(q, named("own")) != 0 || waitingIn(q) != 1 {
		t.Error("another call waits for it")
	}
	q.Wake(named("s"), true, true)
	if !slices.Equal(*woken, []string{"own"}) {
		t.Errorf("woken are %q", *woken)
	}
	// It is taken after all, and has its place again.
	if at, known := q.Place(named("refused"), "refused"); !known || !at.IsExcluded {
		t.Error("it isn't known as excluded")
	}
	q.Add(named("s"), named("refused"), Position{UID: "refused", Sequence: 9})
	if ahead(q, named("own")) != 1 || ahead(q, named("refused")) != 0 {
		t.Error("it hasn't its place again")
	}
	q.Exclude(named("refused"))
	if session := q.Forget(named("refused")); session.Name != "" {
		t.Error("somebody waited for it")
	}
	addTurns(q, "refused")
	q.Exclude(named("refused"))
	q.Hand(named("refused"), "s1")
	if session := q.Forget(named("refused")); session.Name == "" {
		t.Error("a call that the process had after all is forgotten like one that nobody waited for")
	}
	if session := q.Forget(named("own")); session != named("s") || q.Forget(named("own")).Name != "" {
		t.Errorf("a call of the line of %s is gone", session)
	}
	if len(q.calls)+len(q.lines) > 0 {
		t.Error("something is left")
	}
}
