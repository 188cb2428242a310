package fair

import (
	"slices"
	"sync"
)

// Budget bounds how many holders there are at once. When a whole is full, a newcomer evicts the newest holder of the key that has most
// there, unless the newcomer's key would then have as many. So no key keeps others out, and keys with equal shares don't evict each
// other. A Budget takes memory for each holder.
//
// A whole is what a limit is for: all holders, or those of one address. Wholes can be within wholes, such as each address within all.
type Budget[K comparable] struct {
	limits []Limits

	mu sync.Mutex
	// wholes has those of each of the limits.
	wholes []map[K]*whole[K]
}

// Limits are those of each whole of one kind: how many holders it has in total, and how many under one key at each level of keys. All
// are at least 1.
type Limits struct {
	Total int
	Each  []int
}

// Place is the whole that a holder belongs to, and its key at each level there.
type Place[K comparable] struct {
	Whole K
	Keys  []K
}

// Holding is one holder's place, until it is released or evicted.
type Holding[K comparable] struct {
	of     *Budget[K]
	evict  func()
	places []Place[K]
	isHeld bool
}

// Full says how many holders the whole has that has no room: in total, and under the newcomer's keys.
type Full struct {
	Total int
	Of    []int
}

// whole has its holders by the key of each level, in the order in which they came. It is there while somebody holds something.
type whole[K comparable] struct {
	total int
	by    []map[K][]*Holding[K]
}

// NewBudget makes one, from the narrowest kind of whole to the widest: all holders of one whole are in one whole of the next kind.
func NewBudget[K comparable](limits ...Limits) *Budget[K] {
	b := &Budget[K]{limits: limits, wholes: make([]map[K]*whole[K], len(limits))}
	for i := range b.wholes {
		b.wholes[i] = map[K]*whole[K]{}
	}
	return b
}

// Hold lets a holder in, with a place for each of the limits, which has a key for each level; full says why there is no room. The caller
// releases the holding. evict tells the holder that it has to give way: it is called before Hold returns to the newcomer, and never after
// Release has returned. It must neither block nor use the Budget.
func (b *Budget[K]) Hold(evict func(), places ...Place[K]) (holding *Holding[K], full *Full) {
	b.mu.Lock()
	defer b.mu.Unlock()
	evicted, full := b.makeRoom(places)
	if full != nil {
		return nil, full
	}
	if evicted != nil {
		b.remove(evicted)
		evicted.evict()
	}
	holding = &Holding[K]{b, evict, places, true}
	b.add(holding)
	return holding, nil
}

// Release gives the place back. Calling it more than once, or after an eviction, is fine.
func (h *Holding[K]) Release() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.remove(h)
}

// The rest needs the lock.

// makeRoom finds the holder that has to give way; nil where there is room. A newcomer that can't come in evicts nobody. The narrowest
// whole that is full decides: a holder that leaves it leaves the wider ones too.
func (b *Budget[K]) makeRoom(places []Place[K]) (evicted *Holding[K], full *Full) {
	for i, p := range places {
		if w := b.wholes[i][p.Whole]; w != nil && w.exceeds(b.limits[i].Each, p.Keys) {
			return nil, w.full(p.Keys)
		}
	}
	for i, p := range places {
		if w := b.wholes[i][p.Whole]; w != nil && w.total >= b.limits[i].Total {
			if evicted = w.givesWay(p.Keys); evicted == nil {
				full = w.full(p.Keys)
			}
			return evicted, full
		}
	}
	return nil, nil
}

// exceeds says that one of the keys has all that it may.
func (w *whole[K]) exceeds(each []int, keys []K) bool {
	for level, key := range keys {
		if len(w.by[level][key]) >= each[level] {
			return true
		}
	}
	return false
}

func (w *whole[K]) full(keys []K) *Full {
	f := &Full{Total: w.total}
	for level, key := range keys {
		f.Of = append(f.Of, len(w.by[level][key]))
	}
	return f
}

// givesWay is the holder that gives way to a newcomer, by the first level at which a key has more than the newcomer's would have; nil
// for none.
func (w *whole[K]) givesWay(keys []K) *Holding[K] {
	for level, key := range keys {
		var most []*Holding[K]
		for _, held := range w.by[level] {
			if len(held) > len(most) {
				most = held
			}
		}
		if len(most) > len(w.by[level][key])+1 {
			return most[len(most)-1]
		}
	}
	return nil
}

func (b *Budget[K]) add(h *Holding[K]) {
	for i, p := range h.places {
		w := b.wholes[i][p.Whole]
		if w == nil {
			w = &whole[K]{by: make([]map[K][]*Holding[K], len(p.Keys))}
			for level := range w.by {
				w.by[level] = map[K][]*Holding[K]{}
			}
			b.wholes[i][p.Whole] = w
		}
		w.total++
		for level, key := range p.Keys {
			w.by[level][key] = append(w.by[level][key], h)
		}
	}
}

func (b *Budget[K]) remove(h *Holding[K]) {
	if !h.isHeld {
		return
	}
	h.isHeld = false
	for i, p := range h.places {
		w := b.wholes[i][p.Whole]
		for level, key := range p.Keys {
			held := w.by[level][key]
			if at := slices.Index(held, h); len(held) > 1 {
				w.by[level][key] = slices.Delete(held, at, at+1)
			} else {
				delete(w.by[level], key)
			}
		}
		if w.total--; w.total == 0 {
			delete(b.wholes[i], p.Whole)
		}
	}
}
