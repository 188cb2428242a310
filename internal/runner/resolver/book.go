package resolver

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"toolcall.dev/operator/internal/network"
)

const (
	// minValid is how long an address is valid whatever its time to live: clients keep what they looked up for so long. Not so
	// in the cluster, where another pod soon has an address.
	minValid = 60 * time.Second
	// grace is the time between an answer and the connection that follows it.
	grace = 5 * time.Second
	// maxTTL bounds the time to live of answers, for clients and for the book.
	maxTTL = time.Hour

	// maxHostsGrants leaves room for what is looked up.
	maxGrants        = 4096
	maxHostsGrants   = 1024
	maxNamesPerGrant = 16
	// maxPerName bounds the grants of one name, so that a name with ever other addresses doesn't take the room of the others.
	maxPerName = 1024
	// maxEvicted bounds what is remembered of grants for which there was no room.
	maxEvicted = 1024
)

// book holds which addresses were given out, for which names, and until when. Grants that are over stay until there is no
// room, so that a refusal can say so. Then they go first, before those that end soonest. Those without an end stay.
type book struct {
	now func() time.Time
	// inCluster says which addresses are the cluster's.
	inCluster func(netip.Addr) bool

	mu     sync.Mutex
	grants map[netip.Addr][]grant
	count  int
	// perName counts the grants of a name that end.
	perName map[string]int
	// evicted are grants for which there was no room.
	evicted map[netip.Addr]network.LookedUp
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

func (b *book) validity(addr netip.Addr, ttl time.Duration) time.Duration {
	ttl = min(ttl, maxTTL)
	if !b.inCluster(addr) {
		ttl = max(ttl, minValid)
	}
	return ttl + grace
}

// give records that the addresses were given out for a name.
func (b *book) give(name network.LookedUp, addrs []netip.Addr, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for _, addr := range addrs {
		b.add(addr, grant{name, now.Add(b.validity(addr, ttl))})
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
	b.makeRoomFor(addr, &g)
	if len(b.grants[addr]) == maxNamesPerGrant {
		// All have no end.
		b.noteEvicted(addr, g.name)
		return
	}
	if b.grants == nil {
		b.grants, b.perName, b.evicted = map[netip.Addr][]grant{}, map[string]int{}, map[netip.Addr]network.LookedUp{}
	}
	b.grants[addr] = append(b.grants[addr], g)
	b.count++
	if !g.until.IsZero() {
		b.perName[g.name.Name]++
	}
	delete(b.evicted, addr)
}

// makeRoomFor keeps the three bounds: of an address, of a name, and of all.
func (b *book) makeRoomFor(addr netip.Addr, g *grant) {
	if len(b.grants[addr]) == maxNamesPerGrant {
		b.makeRoom(1, func(a netip.Addr, _ *grant) bool { return a == addr })
	}
	if b.perName[g.name.Name] == maxPerName {
		b.makeRoom(maxPerName/8, func(_ netip.Addr, old *grant) bool { return old.name.Name == g.name.Name })
	}
	if b.count == maxGrants {
		b.makeRoom(maxGrants/8, func(netip.Addr, *grant) bool { return true })
	}
}

// makeRoom removes the grants in scope that are over, or if there are none, those that end first. Removing many at once makes
// adding to a full book cost no more than adding to one with room.
func (b *book) makeRoom(many int, scope func(netip.Addr, *grant) bool) {
	now := b.now()
	var ends []time.Time
	expired := 0
	b.each(func(addr netip.Addr, g *grant) {
		switch {
		case g.until.IsZero() || !scope(addr, g):
		case g.isValid(now):
			ends = append(ends, g.until)
		default:
			expired++
		}
	})
	if expired > 0 || len(ends) == 0 {
		b.remove(func(addr netip.Addr, g *grant) bool { return scope(addr, g) && !g.isValid(now) })
		return
	}
	slices.SortFunc(ends, time.Time.Compare)
	last := ends[min(len(ends), many)-1]
	b.remove(func(addr netip.Addr, g *grant) bool {
		isFirst := scope(addr, g) && !g.until.IsZero() && !g.until.After(last)
		if isFirst {
			b.noteEvicted(addr, g.name)
		}
		return isFirst
	})
}

func (b *book) each(do func(netip.Addr, *grant)) {
	for addr, list := range b.grants {
		for i := range list {
			do(addr, &list[i])
		}
	}
}

func (b *book) remove(which func(netip.Addr, *grant) bool) {
	for addr, list := range b.grants {
		kept := slices.DeleteFunc(list, func(g grant) bool {
			if !which(addr, &g) {
				return false
			}
			if b.perName[g.name.Name]--; b.perName[g.name.Name] == 0 {
				delete(b.perName, g.name.Name)
			}
			b.count--
			return true
		})
		if b.grants[addr] = kept; len(kept) == 0 {
			delete(b.grants, addr)
		}
	}
}

// noteEvicted remembers a grant for which there was no room. What is remembered is bounded by starting over.
func (b *book) noteEvicted(addr netip.Addr, name network.LookedUp) {
	if len(b.evicted) == maxEvicted {
		clear(b.evicted)
	}
	b.evicted[addr] = name
}

// evictedName returns the name of an address for which there was no room.
func (b *book) evictedName(addr netip.Addr) (network.LookedUp, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, ok := b.evicted[canonicalAddr(addr)]
	return name, ok
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
