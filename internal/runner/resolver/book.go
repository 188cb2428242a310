package resolver

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"toolcall.dev/operator/internal/network"
)

const (
	// grace is the time between an answer and the connection that follows it.
	grace = 5 * time.Second
	// maxGrants bounds what is remembered. maxHostsGrants leaves room for what is looked up.
	maxGrants      = 4096
	maxHostsGrants = 1024
)

// book holds which addresses were given out, for which names, and until when. Grants that are over stay until there is no
// room, so that a refusal can say so. Then they go first, before those that end soonest. Those without an end stay.
type book struct {
	now func() time.Time

	mu     sync.Mutex
	grants map[netip.Addr][]grant
	count  int
}

// grant is a name that an address was given out for.
type grant struct {
	name network.LookedUp
	// until is when it ends; zero for a grant that doesn't.
	until time.Time
}

func (g *grant) isValid(now time.Time) bool { return g.until.IsZero() || now.Before(g.until) }

// endsBefore orders grants by their end.
func (g *grant) endsBefore(other *grant) bool {
	return !g.until.IsZero() && (other.until.IsZero() || g.until.Before(other.until))
}

// give records that the addresses were given out for a name, with a time to live.
func (b *book) give(name network.LookedUp, addrs []netip.Addr, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	until := b.now().Add(ttl + grace)
	for _, addr := range addrs {
		b.add(addr, grant{name, until})
	}
}

// keep records a name of an address for the whole call.
func (b *book) keep(name network.LookedUp, addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(addr, grant{name: name})
}

func (b *book) add(addr netip.Addr, g grant) {
	addr = canonicalAddr(addr)
	list := b.grants[addr]
	if i := slices.IndexFunc(list, func(old grant) bool { return old.name == g.name }); i >= 0 {
		if list[i].endsBefore(&g) {
			list[i] = g
		}
		return
	}
	if b.count == maxGrants {
		b.makeRoom()
	}
	if b.grants == nil {
		b.grants = map[netip.Addr][]grant{}
	}
	b.grants[addr] = append(b.grants[addr], g)
	b.count++
}

// makeRoom removes the grants that are over, or if there are none, those that end first: many at once, so that adding to a full book
// costs no more than adding to one with room.
func (b *book) makeRoom() {
	var ends []time.Time
	for _, list := range b.grants {
		for i := range list {
			if !list[i].until.IsZero() {
				ends = append(ends, list[i].until)
			}
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	last := b.now()
	if ends[0].After(last) {
		last = ends[len(ends)/8]
	}
	for addr, list := range b.grants {
		kept := slices.DeleteFunc(list, func(g grant) bool { return !g.until.IsZero() && !g.until.After(last) })
		b.count -= len(list) - len(kept)
		if b.grants[addr] = kept; len(kept) == 0 {
			delete(b.grants, addr)
		}
	}
}

func canonicalAddr(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// names returns the names of an address that are valid, and those that were.
func (b *book) names(addr netip.Addr) (valid, expired []network.LookedUp) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for _, g := range b.grants[canonicalAddr(addr)] {
		if g.isValid(now) {
			valid = append(valid, g.name)
		} else {
			expired = append(expired, g.name)
		}
	}
	return valid, expired
}
