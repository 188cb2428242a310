package turns

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

var here = types.NamespacedName{Namespace: "ns", Name: "env"}

func ticket(caller string, n int) Ticket {
	name := fmt.Sprintf("%s-%d", caller, n)
	return Ticket{Call: types.NamespacedName{Namespace: "ns", Name: name}, UID: types.UID(name), Caller: caller, Arrived: [2]int64{0, int64(n)}}
}

// world notes who was woken.
type world struct {
	*Turns
	woken []string
}

func newWorld() *world {
	w := &world{}
	w.Turns = New(func(c types.NamespacedName) { w.woken = append(w.woken, c.Name) })
	return w
}

func (w *world) enter(limit int, t Ticket) bool { return w.Enter(here, limit, t) }

// next ends a call and returns who was woken for it.
func (w *world) next(t Ticket) []string {
	w.woken = nil
	w.Leave(t.Call)
	return w.woken
}

func TestWithoutALimitEverybodyGoes(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 100 {
		if !w.enter(0, ticket("a", i)) {
			t.Fatalf("call %d has to wait", i)
		}
	}
	if running, waiting := w.Len(); running != 100 || waiting != 0 || w.woken != nil {
		t.Errorf("%d run, %d wait, woken %q", running, waiting, w.woken)
	}
}

func TestOneCallersCallsGoInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.enter(1, ticket("a", 0))
	for _, n := range []int{3, 1, 2} {
		if w.enter(1, ticket("a", n)) {
			t.Fatalf("call %d goes over the limit", n)
		}
	}
	for n := range 3 {
		if got, want := w.next(ticket("a", n)), []string{fmt.Sprintf("a-%d", n+1)}; !slices.Equal(got, want) {
			t.Errorf("after call %d: woken %q, want %q", n, got, want)
		}
	}
	if got := w.next(ticket("a", 3)); got != nil {
		t.Errorf("woken %q though nobody waits", got)
	}
}

// A call that is still being judged keeps its place in front of the caller's later ones, and of nobody else's.
func TestALaterCallWaitsForTheEarlierOneToBeJudged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// ends is what becomes of the first call.
		ends  func(w *world, done func()) (may bool)
		may   bool
		woken []string
	}{
		"it may run":       {func(w *world, _ func()) bool { return w.enter(1, ticket("a", 0)) }, true, nil},
		"it may not":       {func(_ *world, done func()) bool { done(); return false }, false, []string{"a-1"}},
		"no limit anymore": {func(w *world, _ func()) bool { w.Limit(here, 0); return false }, false, []string{"a-1", "a-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			done := w.Expect(here, ticket("a", 0))
			for n := 1; n < 3; n++ {
				if w.enter(1, ticket("a", n)) {
					t.Fatalf("call %d goes before the first", n)
				}
			}
			if may := test.ends(w, done); may != test.may || !slices.Equal(w.woken, test.woken) {
				t.Errorf("the first may run: %t; woken %q", may, w.woken)
			}
			done()
			for n := range 3 {
				w.Leave(ticket("a", n).Call)
			}
			if left := w.places[here].callers; len(left) != 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

func TestACallThatIsJudgedHoldsUpNoOtherCallerAndNoEarlierCall(t *testing.T) {
	t.Parallel()
	w := newWorld()
	defer w.Expect(here, ticket("a", 1))()
	if !w.enter(2, ticket("b", 2)) || !w.enter(2, ticket("a", 0)) {
		t.Error("a call waits for one that isn't before it in its caller's line")
	}
	// One that runs or waits already is expected no more.
	w.Expect(here, ticket("a", 0))
	w.Leave(ticket("b", 2).Call)
	if w.enter(2, ticket("a", 3)) {
		t.Error("the earlier call's place is lost")
	}
}

func TestAFloodMakesItsOwnSenderWait(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 5} {
		w := newWorld()
		for n := range 100 {
			w.enter(limit, ticket("flood", n))
		}
		w.enter(limit, ticket("other", 1000))
		turns := 0
		for n := 0; !slices.Contains(w.woken, "other-1000"); n++ {
			w.next(ticket("flood", n))
			turns++
		}
		if turns > 2 {
			t.Errorf("limit %d: the other caller waited for %d turns", limit, turns)
		}
	}
}

func TestTwoFloodsShareTheTurns(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for n := range 50 {
		w.enter(4, ticket("a", n))
	}
	for n := range 50 {
		w.enter(4, ticket("b", n))
	}
	served := map[string]int{}
	running := []string{"a-0", "a-1", "a-2", "a-3"}
	for range 40 {
		first := running[0]
		w.woken = nil
		w.Leave(types.NamespacedName{Namespace: "ns", Name: first})
		running = append(running[1:], w.woken...)
		for _, name := range w.woken {
			served[name[:1]]++
		}
	}
	if d := served["a"] - served["b"]; d < -4 || d > 4 {
		t.Errorf("served %v", served)
	}
}

func TestAskingAgainKeepsTheTurnAndThePlace(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.enter(1, ticket("a", 0))
	w.enter(1, ticket("a", 1))
	w.enter(1, ticket("a", 2))
	for range 3 {
		if !w.enter(1, ticket("a", 0)) || w.enter(1, ticket("a", 2)) || w.enter(1, ticket("a", 1)) {
			t.Fatal("asking again changes the answer")
		}
	}
	if got := w.next(ticket("a", 0)); !slices.Equal(got, []string{"a-1"}) {
		t.Errorf("woken %q", got)
	}
	if running, waiting := w.Len(); running != 1 || waiting != 1 {
		t.Errorf("%d run, %d wait", running, waiting)
	}
}

func TestOneThatWaitsAndGoesLeavesItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.enter(1, ticket("a", 0))
	w.enter(1, ticket("a", 1))
	w.enter(1, ticket("a", 2))
	if got := w.next(ticket("a", 1)); got != nil {
		t.Errorf("woken %q by one that only waited", got)
	}
	if w.Waits(ticket("a", 1).Call, "a-1") || !w.Waits(ticket("a", 2).Call, "a-2") {
		t.Error("who waits is wrong")
	}
	if got := w.next(ticket("a", 0)); !slices.Equal(got, []string{"a-2"}) {
		t.Errorf("woken %q", got)
	}
}

func TestANameThatIsUsedAgainIsAnotherCall(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.enter(1, ticket("a", 0))
	w.enter(1, ticket("a", 1))
	again := ticket("a", 0)
	again.UID, again.Arrived = "another", [2]int64{0, 9}
	if w.enter(1, again) {
		t.Error("the new call has the old one's turn")
	}
	if !slices.Equal(w.woken, []string{"a-1"}) {
		t.Errorf("woken %q", w.woken)
	}
	if w.Waits(again.Call, "a-0") || !w.Waits(again.Call, "another") {
		t.Error("the old call waits in the new one's place")
	}
}

func TestWhatRunsAlreadyCounts(t *testing.T) {
	t.Parallel()
	w := newWorld()
	broken := errors.New("broken")
	if err := w.Learn(here, func() ([]Ticket, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("learned from an error: %v", err)
	}
	asked := 0
	for range 2 {
		err := w.Learn(here, func() ([]Ticket, error) {
			asked++
			return []Ticket{ticket("a", 0), ticket("a", 1)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Hold(here, ticket("a", 1))
	if asked != 1 || w.enter(2, ticket("b", 2)) {
		t.Errorf("calls from before don't count; asked %d times", asked)
	}
	if !w.enter(2, ticket("a", 1)) {
		t.Error("a call from before lost its turn")
	}
	if got := w.next(ticket("a", 0)); !slices.Equal(got, []string{"b-2"}) {
		t.Errorf("woken %q", got)
	}
}

func TestAnotherLimitHoldsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for n := range 6 {
		w.enter(1, ticket("a", n))
	}
	w.woken = nil
	w.Limit(here, 3)
	if !slices.Equal(w.woken, []string{"a-1", "a-2"}) {
		t.Errorf("raised to 3: woken %q", w.woken)
	}
	w.Limit(here, 1)
	if got := w.next(ticket("a", 0)); got != nil {
		t.Errorf("lowered to 1 with two running: woken %q", got)
	}
	w.woken = nil
	w.Limit(here, 0)
	if !slices.Equal(w.woken, []string{"a-3", "a-4", "a-5"}) {
		t.Errorf("no limit any more: woken %q", w.woken)
	}
	w.Limit(types.NamespacedName{Name: "unseen"}, 5)
}

func TestAPlaceThatIsGoneLetsEverybodyGoAndIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for n := range 3 {
		w.enter(1, ticket("a", n))
	}
	w.Gone(here)
	if !slices.Equal(w.woken, []string{"a-1", "a-2"}) {
		t.Errorf("woken %q", w.woken)
	}
	for n := range 3 {
		if len(w.places) != 1 {
			t.Fatal("the place is forgotten before its last call")
		}
		w.Leave(ticket("a", n).Call)
	}
	if len(w.places) != 0 {
		t.Error("the place is still known")
	}
	w.Gone(here)
}

func TestPlacesAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.enter(1, ticket("a", 0))
	there := types.NamespacedName{Namespace: "ns", Name: "other"}
	if !w.Enter(there, 1, ticket("a", 1)) {
		t.Error("another place's calls count")
	}
	// A call whose environment is another one now lets the old place go on.
	w.enter(1, ticket("a", 2))
	w.woken = nil
	w.Enter(there, 1, ticket("a", 0))
	if !slices.Equal(w.woken, []string{"a-2"}) {
		t.Errorf("woken %q", w.woken)
	}
}

// Whatever happens in whatever order: the limit holds, nobody is forgotten, and in the end nothing is left.
func TestAnyOrderOfEventsKeepsTheLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + random.IntN(4)
		runs, waits := map[string]Ticket{}, map[string]Ticket{}
		turns := New(func(c types.NamespacedName) {
			runs[c.Name] = waits[c.Name]
			delete(waits, c.Name)
		})
		for n := range 400 {
			switch {
			case random.IntN(2) == 0:
				tk := ticket(fmt.Sprint("caller", random.IntN(5)), n)
				judged := turns.Expect(here, tk)
				switch {
				case random.IntN(4) == 0:
					// It may not run.
				case turns.Enter(here, limit, tk):
					runs[tk.Call.Name] = tk
				default:
					waits[tk.Call.Name] = tk
				}
				judged()
			default:
				leave(random, turns, runs, waits)
			}
			if len(runs) > limit || (len(runs) < limit && len(waits) > 0) {
				t.Fatalf("seed %d: %d run and %d wait, the limit is %d", seed, len(runs), len(waits), limit)
			}
		}
		for len(runs)+len(waits) > 0 {
			leave(random, turns, runs, waits)
		}
		if diff := cmp.Diff(map[string]*caller{}, turns.places[here].callers, cmp.AllowUnexported(caller{})); diff != "" || len(turns.where) != 0 {
			t.Errorf("seed %d: left over: %s %v", seed, diff, turns.where)
		}
	}
}

// leave has some call end or go away.
func leave(random *rand.Rand, turns *Turns, from ...map[string]Ticket) {
	m := from[random.IntN(len(from))]
	for name, tk := range m {
		delete(m, name)
		turns.Leave(tk.Call)
		return
	}
}
