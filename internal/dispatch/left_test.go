package dispatch

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch/wire"
)

func keepOne(l *leftResults, namespace, key, uid string, size int) {
	l.keep(key, &heldResult{call: types.NamespacedName{Namespace: namespace, Name: "call-" + uid}, result: &wire.Result{CallUID: uid}, size: size})
}

func TestTheNamespaceWhoseResultsTakeMostGivesWay(t *testing.T) {
	t.Parallel()
	l := newLeftResults(100 * (1000 + leftOverhead))
	keepOne(l, "modest", "key", "old", 1000)
	for i := range 500 {
		keepOne(l, "greedy", fmt.Sprint(i), "call", 1000)
	}
	keepOne(l, "modest", "key", "new", 1000)
	if l.get("key", "old") == nil || l.get("key", "new") == nil {
		t.Error("another namespace's results pushed it out")
	}
	for i, want := range map[int]bool{0: false, 400: false, 403: true, 499: true} {
		if got := l.get(fmt.Sprint(i), "call") != nil; got != want {
			t.Errorf("result %d is kept: %t", i, got)
		}
	}
}

func TestAResultIsKeptOnce(t *testing.T) {
	t.Parallel()
	l := newLeftResults(1 << 20)
	for range 3 {
		keepOne(l, "ns", "key", "c1", 1000)
	}
	if l.bytes != 1000+leftOverhead {
		t.Errorf("three times the same take %d bytes", l.bytes)
	}
	keepOne(l, "ns", "key", "c2", 1000)
	l.forgetRunner("key", func(uid string) bool { return uid == "c2" })
	if l.get("key", "c1") != nil || l.get("key", "c2") == nil {
		t.Error("what the runner still has went, or the rest stays")
	}
}

func TestLeftResultsStayWithinTheirBoundAndLeaveNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		l := newLeftResults(20_000)
		name := func(what string, n int) string { return fmt.Sprint(what, random.IntN(n)) }
		for range 500 {
			switch random.IntN(6) {
			case 0:
				l.forget(name("key", 5), name("c", 5))
			case 1:
				stays, call := name("c", 5), types.NamespacedName{Namespace: name("ns", 3), Name: "call-" + name("c", 5)}
				l.forgetOthers(call, stays)
				if l.hasOther(call, stays) {
					t.Fatalf("seed %d: results of other calls are left", seed)
				}
			case 2:
				l.forgetRunner(name("key", 5), func(uid string) bool { return uid == "c0" })
			default:
				keepOne(l, name("ns", 3), name("key", 5), name("c", 5), random.IntN(5000))
			}
			sum := 0
			for _, results := range l.runners {
				for _, one := range results {
					sum += one.bytes
				}
			}
			if sum != l.bytes || sum > l.max {
				t.Fatalf("seed %d: %d bytes are kept and %d counted, of at most %d", seed, sum, l.bytes, l.max)
			}
		}
		for key := range l.runners {
			l.forgetRunner(key, func(string) bool { return false })
		}
		if l.bytes != 0 || len(l.runners)+len(l.calls)+len(l.namespaces) != 0 {
			t.Fatalf("seed %d: %d bytes are left, %d calls, %d namespaces", seed, l.bytes, len(l.calls), len(l.namespaces))
		}
	}
}

func TestAResultThatIsLargerThanAllRoomIsNotKept(t *testing.T) {
	t.Parallel()
	l := newLeftResults(1000)
	keepOne(l, "ns", "key", "c1", 1001)
	if l.get("key", "c1") != nil || l.bytes != 0 {
		t.Error("it is kept")
	}
}
