package queue

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func inLine(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// addTurns has calls wait in a session, in their order.
func addTurns(t *Turns, names ...string) {
	for i, name := range names {
		t.Add(inLine("s"), inLine(name), Turn{UID: types.UID(name), Sequence: int64(i)})
	}
}

func TestACallThatDidNotArriveIsNotOvertaken(t *testing.T) {
	t.Parallel()
	turns := NewTurns(nil)
	addTurns(turns, "a", "b", "c")
	turns.Hand(inLine("a"), "s1")
	turns.Hand(inLine("b"), "s1")
	if turns.Ahead(inLine("c")) != 0 {
		t.Fatal("calls that were handed over are ahead of others")
	}
	turns.Return(inLine("s"), "s1", func(call types.UID) bool { return call == "a" })
	if ahead := turns.Ahead(inLine("c")); ahead != 1 {
		t.Errorf("%d calls are ahead", ahead)
	}
	if turns.HandedIn(inLine("a"), "a") != "s1" || turns.HandedIn(inLine("b"), "b") != "" {
		t.Error("it isn't known which call arrived")
	}
	if diff := cmp.Diff([]types.NamespacedName{inLine("b"), inLine("c")}, turns.first(inLine("s"), 3, 3)); diff != "" {
		t.Error(diff)
	}
}

// What was handed over in a session that had the name before, that session's process alone knows.
func TestACallOfASessionThatIsGoneDoesNotReturn(t *testing.T) {
	t.Parallel()
	turns := NewTurns(nil)
	addTurns(turns, "a")
	turns.Hand(inLine("a"), "s1")
	turns.Return(inLine("s"), "s2", func(types.UID) bool { return false })
	turns.Return(inLine("another"), "s1", func(types.UID) bool { return false })
	if turns.HandedIn(inLine("a"), "a") != "s1" {
		t.Error("the call waits again")
	}
}

func TestTurnsForgetWhatIsGone(t *testing.T) {
	t.Parallel()
	turns := NewTurns(nil)
	addTurns(turns, "a", "b", "c")
	turns.Hand(inLine("a"), "s1")
	turns.Hand(inLine("b"), "s1")
	turns.Return(inLine("s"), "s1", func(call types.UID) bool { return call == "a" })
	for _, name := range []string{"a", "b", "c"} {
		turns.Forget(inLine(name))
	}
	if len(turns.calls)+len(turns.lines) > 0 {
		t.Errorf("left are %v, %v", turns.calls, turns.lines)
	}
}
