package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// holders counts who holds something by key, as they see it themselves.
type holders struct {
	t *testing.T
	*Budget[string]
	have    map[string]int
	evicted []string
}

func newHolders(t *testing.T, limits ...Limits) *holders {
	return &holders{t: t, Budget: NewBudget[string](limits...), have: map[string]int{}}
}

// hold lets one in that is counted under the first key of its widest whole.
func (h *holders) hold(name string, places ...Place[string]) *Holding[string] {
	key := places[len(places)-1].Keys[0]
	holding, full := h.Hold(func() {
		h.have[key]--
		h.evicted = append(h.evicted, name)
	}, places...)
	if full == nil {
		h.have[key]++
	}
	return holding
}

func (h *holders) expectEmpty() {
	h.t.Helper()
	for i, wholes := range h.wholes {
		if len(wholes) != 0 {
			h.t.Errorf("wholes %d remember %v", i, wholes)
		}
	}
}

// in is a place in the only whole.
func in(keys ...string) Place[string] { return Place[string]{Keys: keys} }

func TestABudgetBoundsEachLevelOfKeysAndAll(t *testing.T) {
	t.Parallel()
	const most, each, eachUser = 40, 20, 10
	for name, c := range map[string]struct {
		who  func(i string) Place[string]
		most int
	}{
		"a namespace":   {func(i string) Place[string] { return in("ns", i) }, each},
		"a user":        {func(i string) Place[string] { return in(i, "user") }, eachUser},
		"all different": {func(i string) Place[string] { return in(i, i) }, most},
	} {
		h := newHolders(t, Limits{most, []int{each, eachUser}})
		var held []*Holding[string]
		for i := range most + 10 {
			if one := h.hold("one", c.who(fmt.Sprint(i))); one != nil {
				held = append(held, one)
			}
		}
		if len(held) != c.most || len(h.evicted) != 0 {
			t.Errorf("%s: %d hold something, want %d; %d gave way", name, len(held), c.most, len(h.evicted))
		}
		for _, one := range held {
			one.Release()
			one.Release()
		}
		h.expectEmpty()
	}
}

func TestARefusalSaysHowManyThereAre(t *testing.T) {
	t.Parallel()
	h := newHolders(t, Limits{3, []int{2, 3}})
	h.hold("first", in("a", "x"))
	h.hold("second", in("a", "y"))
	if _, full := h.Hold(nil, in("a", "x")); full == nil || full.Total != 2 || !slices.Equal(full.Of, []int{2, 1}) {
		t.Errorf("got %+v", full)
	}
	h.hold("third", in("b", "z"))
	if _, full := h.Hold(nil, in("b", "z")); full == nil || full.Total != 3 || !slices.Equal(full.Of, []int{1, 1}) {
		t.Errorf("got %+v", full)
	}
}

// Two keys hold all that there is. The others get as much as those are left.
func TestTheKeyThatHasMostGivesWay(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][]Limits{
		"of all":         {{8000, []int{8000}}, {800, []int{600}}},
		"of one address": {{800, []int{800}}, {8000, []int{600}}},
	} {
		h := newHolders(t, limits...)
		hold := func(key string) *Holding[string] {
			return h.hold("one", Place[string]{Whole: "address", Keys: []string{key}}, in(key))
		}
		for i := range 1600 {
			hold([]string{"greedy", "greedier"}[i%2])
		}
		for i := range 1600 {
			if got := hold("modest") != nil; got != (i < 266) {
				t.Fatalf("%s: holder %d of the third key got in: %t", name, i, got)
			}
		}
		if hold("last") == nil {
			t.Errorf("%s: the first of a key found no room", name)
		}
		for key, have := range h.have {
			if key != "last" && (have < 265 || have > 268) {
				t.Errorf("%s: %s has %d", name, key, have)
			}
		}
		if n := h.wholes[1][""].total; n != 800 {
			t.Errorf("%s: %d hold something", name, n)
		}
	}
}

// A whole that is full of equals refuses, whatever could give way in a wider one.
func TestNobodyGivesWayForOneThatGetsNothing(t *testing.T) {
	t.Parallel()
	h := newHolders(t, Limits{2, []int{2}}, Limits{8, []int{5}})
	hold := func(whole, key string) bool {
		return h.hold("one", Place[string]{Whole: whole, Keys: []string{key}}, in(key)) != nil
	}
	hold("x", "a")
	hold("x", "b")
	for _, whole := range []string{"1", "1", "2", "2", "3"} {
		hold(whole, "large")
	}
	if hold("x", "c") || len(h.evicted) != 0 {
		t.Errorf("%d gave way", len(h.evicted))
	}
	// A key that has all that it may costs nobody its place in a narrower whole.
	hold("x", "a")
	if hold("x", "large") || len(h.evicted) != 0 {
		t.Errorf("%d gave way", len(h.evicted))
	}
}

// Where no key of the first level has more than the newcomer's would, those of the next are looked at.
func TestTheSecondLevelGivesWayWhereTheFirstIsEven(t *testing.T) {
	t.Parallel()
	h := newHolders(t, Limits{16, []int{8, 4}})
	for i := range 16 {
		h.hold(fmt.Sprint(i), in(fmt.Sprint("namespace", i), fmt.Sprint("user", i%4)))
	}
	for i := range 3 {
		if h.hold("new", in(fmt.Sprint("own", i), "newcomer")) == nil || len(h.evicted) != i+1 {
			t.Errorf("%d: %d gave way", i, len(h.evicted))
		}
	}
	if h.hold("new", in("own", "newcomer")) != nil {
		t.Error("it got more than its share")
	}
}

func TestTheNewestOfAKeyGivesWay(t *testing.T) {
	t.Parallel()
	b, evicted := NewBudget[string](Limits{3, []int{3}}), ""
	var held []*Holding[string]
	for i := range 3 {
		one, _ := b.Hold(func() { evicted += fmt.Sprint(i) }, in("key"))
		held = append(held, one)
	}
	newcomer, full := b.Hold(nil, in("other"))
	if full != nil || evicted != "2" {
		t.Fatalf("%q gave way, want 2", evicted)
	}
	if _, full := b.Hold(nil, in("other")); full == nil {
		t.Error("a key that would have as many was made room for")
	}
	for _, one := range append(held, newcomer) {
		one.Release()
	}
	if len(b.wholes[0]) != 0 {
		t.Errorf("left is %v", b.wholes[0])
	}
}

// one is a holder in the plainest form of a Budget, which is a list.
type one struct {
	holding            *Holding[string]
	source, space, who string
	isEvicted          bool
}

// A Budget lets in, refuses and evicts as a list of holders does that is counted each time.
func TestABudgetDecidesAsAListDoes(t *testing.T) {
	t.Parallel()
	const perSource, most, perSpace, perUser = 6, 14, 9, 5
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 5))
		b := NewBudget[string](Limits{perSource, []int{Unbounded}}, Limits{most, []int{perSpace, perUser}})
		var list []*one
		count := func(of func(*one) bool) (n int) {
			for _, o := range list {
				if of(o) {
					n++
				}
			}
			return n
		}
		// largest is how many the key has that has most, among some.
		largest := func(among func(*one) bool, key func(*one) string) int {
			counts := map[string]int{}
			for _, o := range list {
				if among(o) {
					counts[key(o)]++
				}
			}
			n := 0
			for _, count := range counts {
				n = max(n, count)
			}
			return n
		}
		for step := range 600 {
			if len(list) > 0 && random.IntN(4) == 0 {
				at := random.IntN(len(list))
				list[at].holding.Release()
				list = slices.Delete(list, at, at+1)
				continue
			}
			pick := func(n int) string { return fmt.Sprint(int(float64(n) * random.Float64() * random.Float64())) }
			o := &one{source: pick(4), space: pick(5), who: pick(6)}
			all := func(*one) bool { return true }
			ofSource := func(other *one) bool { return other.source == o.source }
			ofSpace := func(other *one) bool { return other.space == o.space }
			ofUser := func(other *one) bool { return other.who == o.who }
			space, user := func(o *one) string { return o.space }, func(o *one) string { return o.who }
			among, key, own, room := all, space, count(ofSpace), len(list) < most
			switch {
			case count(ofSource) >= perSource:
				among, own, room = ofSource, count(func(other *one) bool { return ofSource(other) && ofSpace(other) }), false
			case !room && largest(all, space) <= own+1:
				key, own = user, count(ofUser)
			}
			want := count(ofSpace) < perSpace && count(ofUser) < perUser && (room || largest(among, key) > own+1)
			var full *Full
			o.holding, full = b.Hold(func() { o.isEvicted = true }, Place[string]{o.source, []string{o.space}}, in(o.space, o.who))
			if (full == nil) != want {
				t.Fatalf("seed %d, step %d: let in: %t, want %t", seed, step, full == nil, want)
			}
			if want && !room {
				at := slices.IndexFunc(list, func(o *one) bool { return o.isEvicted })
				if at < 0 {
					t.Fatalf("seed %d, step %d: nobody gave way", seed, step)
				}
				gone := list[at]
				of := func(other *one) bool { return among(other) && key(other) == key(gone) }
				if !among(gone) || count(of) != largest(among, key) || slices.ContainsFunc(list[at+1:], of) {
					t.Fatalf("seed %d, step %d: another than the newest of the largest gave way", seed, step)
				}
				list = slices.Delete(list, at, at+1)
			}
			if full == nil {
				list = append(list, o)
			}
			if i := slices.IndexFunc(list, func(o *one) bool { return o.isEvicted }); i >= 0 {
				t.Fatalf("seed %d, step %d: another gave way too", seed, step)
			}
		}
		for _, o := range list {
			o.holding.Release()
		}
		if len(b.wholes[0])+len(b.wholes[1]) != 0 {
			t.Errorf("seed %d: left are %v", seed, b.wholes)
		}
	}
}

// No Evict comes after its Release, and no limit is exceeded.
func TestABudgetUnderConcurrency(t *testing.T) {
	t.Parallel()
	b := NewBudget[string](Limits{10, []int{8}})
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(6, uint64(worker)))
			for range 300 {
				evictions, isOver := 0, false
				h, full := b.Hold(func() {
					if evictions++; evictions > 1 || isOver {
						t.Error("it is evicted twice, or after its end")
					}
				}, in(fmt.Sprint(random.IntN(1+worker%4))))
				if full != nil {
					continue
				}
				b.mu.Lock()
				if b.wholes[0][""].total > 10 {
					t.Errorf("%d hold something", b.wholes[0][""].total)
				}
				b.mu.Unlock()
				h.Release()
				isOver = true
			}
		})
	}
	all.Wait()
	if len(b.wholes[0]) != 0 {
		t.Errorf("left are %v", b.wholes[0])
	}
}
