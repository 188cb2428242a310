package dispatch

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// arrivals adds connections one millisecond apart and remembers which were closed.
type arrivals struct {
	*unauthenticated
	now     time.Time
	evicted []string
}

func newArrivals() *arrivals {
	return &arrivals{unauthenticated: newUnauthenticated(), now: time.Unix(1e9, 0)}
}

func (a *arrivals) arrive(source netip.Addr, name string) *candidate {
	a.now = a.now.Add(time.Millisecond)
	return a.add(source, a.now, func() { a.evicted = append(a.evicted, name) })
}

func addr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// check compares the count with what is there.
func (a *arrivals) check(t *testing.T) {
	t.Helper()
	total := 0
	for source, own := range a.sources {
		if total += len(own); len(own) == 0 || len(own) > maxUnauthenticatedPerSource {
			t.Errorf("%s has %d", source, len(own))
		}
	}
	if total != a.total || total > maxUnauthenticated {
		t.Errorf("%d are there; %d are counted", total, a.total)
	}
}

// largest is how many the source has that has most.
func (a *arrivals) largest() (most int) {
	for _, own := range a.sources {
		most = max(most, len(own))
	}
	return most
}

func TestASourceLosesItsOwnOldestConnections(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	a.arrive(addr(2), "the other")
	for i := range 600 {
		if a.arrive(addr(1), fmt.Sprint(i)) == nil {
			t.Fatalf("connection %d was turned away", i)
		}
	}
	if len(a.evicted) != 600-maxUnauthenticatedPerSource {
		t.Errorf("%d were closed", len(a.evicted))
	}
	for i, name := range a.evicted {
		if name != fmt.Sprint(i) {
			t.Fatalf("closed %v; want the oldest first, and none of the other source", a.evicted)
		}
	}
	a.check(t)
}

func TestANewcomerTakesThePlaceOfTheLargestSourcesOldest(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	for i := range maxUnauthenticatedPerSource {
		a.arrive(addr(1), fmt.Sprintf("largest %d", i))
	}
	for i := 0; a.total < maxUnauthenticated; i++ {
		a.arrive(addr(2+i/4), "modest")
	}
	for i := range 10 {
		if a.arrive(addr(100000+i), "newcomer") == nil {
			t.Error("a newcomer was turned away")
		}
	}
	for i, name := range a.evicted {
		if name != fmt.Sprintf("largest %d", i) {
			t.Errorf("closed %q", name)
		}
	}
	if len(a.evicted) != 10 {
		t.Errorf("%d were closed", len(a.evicted))
	}
	a.check(t)
}

func TestOfTheLargestSourcesTheOneThatWasThatLargeFirstLoses(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	for i := range maxUnauthenticated {
		a.arrive(addr(i%8), fmt.Sprint(i))
	}
	for i := range 16 {
		a.arrive(addr(100+i), "newcomer")
	}
	for i, name := range a.evicted {
		if name != fmt.Sprint(i) {
			t.Fatalf("closed %v", a.evicted)
		}
	}
	if len(a.evicted) != 16 {
		t.Errorf("%d were closed", len(a.evicted))
	}
	a.check(t)
}

// When all runners come back at once, each from its own address, closing one for another would let none complete.
func TestManyModestSourcesAreLeftAloneWhileTheyAreNew(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	a.now = a.now.Add(-time.Millisecond * maxUnauthenticated)
	for i := range maxUnauthenticated {
		a.arrive(addr(i), fmt.Sprint(i))
	}
	a.now = a.sources[addr(0)][0].since.Add(minUnauthenticated - 2*time.Millisecond)
	if a.arrive(addr(99999), "newcomer") != nil || len(a.evicted) != 0 {
		t.Errorf("a newcomer took the place of %v", a.evicted)
	}
	if a.arrive(addr(99999), "newcomer") == nil || len(a.evicted) != 1 || a.evicted[0] != "0" {
		t.Errorf("a newcomer did not take the oldest one's place: closed %v", a.evicted)
	}
	a.check(t)
}

func TestConnectionsThatSaidWhoTheyAreDoNotCount(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	for range 10 * maxUnauthenticated {
		c := a.arrive(addr(1), "known")
		a.remove(c)
		a.remove(c)
	}
	if len(a.evicted) != 0 || a.total != 0 || len(a.sources) != 0 {
		t.Errorf("closed %d; %d are left, of %d sources", len(a.evicted), a.total, len(a.sources))
	}
	a.check(t)
}

func TestTheBoundsHoldWhateverArrivesAndLeaves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 1))
		a := newArrivals()
		var there []*candidate
		for range 20_000 {
			if len(there) > 0 && random.IntN(4) == 0 {
				i := random.IntN(len(there))
				a.remove(there[i])
				there = append(there[:i], there[i+1:]...)
				continue
			}
			// Some sources send much more than others.
			source := addr(int(1e4 * random.Float64() * random.Float64() * random.Float64()))
			before := len(a.sources[source])
			c := a.arrive(source, "one")
			if c == nil && before == 0 && a.largest() > 1 {
				t.Fatal("a newcomer was turned away while a source had more than one")
			}
			if c != nil {
				there = append(there, c)
			}
		}
		a.check(t)
		for _, c := range there {
			a.remove(c)
		}
		if a.total != 0 || len(a.sources) != 0 {
			t.Errorf("seed %d: %d are left, of %d sources", seed, a.total, len(a.sources))
		}
	}
}

func BenchmarkEviction(b *testing.B) {
	a := newArrivals()
	for i := range maxUnauthenticated / 2 {
		a.arrive(addr(i), "")
		a.arrive(addr(i), "")
	}
	n := maxUnauthenticated
	b.ReportAllocs()
	for b.Loop() {
		n++
		a.evicted = a.evicted[:0]
		a.arrive(addr(n), "")
	}
}
