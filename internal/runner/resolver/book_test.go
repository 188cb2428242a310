package resolver

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

// clock is a clock that a test sets.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func newBook(c *clock) *book { return &book{now: c.read} }

// named is a name without aliases.
func named(name string) network.LookedUp { return network.LookedUp{Name: name, Target: name} }

func newClock() *clock { return &clock{now: time.Unix(1_000_000, 0)} }

// An address counts for as long as the client was told, and a little longer.
func TestAnAddressIsValidForItsTimeToLive(t *testing.T) {
	t.Parallel()
	const public, clustered = "198.51.100.7", "10.96.0.10"
	for _, tc := range []struct {
		addr        string
		ttl, answer uint32
	}{
		{public, 0, 60}, {public, 59, 60}, {public, 61, 61}, {public, 300, 300}, {public, 24 * 3600, 3600},
		{clustered, 0, 0}, {clustered, 5, 5}, {clustered, 24 * 3600, 3600},
	} {
		c := newClock()
		s := newNameserver(t, func(asked dnsmessage.Message, _ string) [][]byte {
			msg := replyTo(asked)
			msg.Answers = []dnsmessage.Resource{record(asksFor, tc.ttl, addrBody(netip.MustParseAddr(tc.addr)))}
			return one(msg)
		})
		r := configured(t, listing("packages.example.com"), func(config *Config) {
			config.Nameservers, config.Now = []netip.AddrPort{s.addr}, c.read
		})
		if got := ask(t, r, asksFor, dnsmessage.TypeA); len(got.Answers) != 1 || got.Answers[0].Header.TTL != tc.answer {
			t.Errorf("%s, %d s: %+v", tc.addr, tc.ttl, got.Answers)
		}
		c.now = c.now.Add(time.Duration(tc.answer)*time.Second + grace - 1)
		if !canConnect(r, tc.addr) {
			t.Errorf("%s, %d s: it is over before its end", tc.addr, tc.ttl)
		}
		if c.now = c.now.Add(1); canConnect(r, tc.addr) {
			t.Errorf("%s, %d s: it isn't over at its end", tc.addr, tc.ttl)
		}
	}
}

func TestALaterAnswerProlongsAndNeverShortens(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := newBook(c)
	addr := netip.MustParseAddr("198.51.100.7")
	isValid := func() bool {
		valid, _ := b.names(addr)
		return len(valid) > 0
	}
	b.give(named("a.test"), []netip.Addr{addr}, 10*time.Minute)
	b.give(named("a.test"), []netip.Addr{addr}, 0)
	c.now = c.now.Add(10 * time.Minute)
	if !isValid() {
		t.Error("a shorter time to live ended a longer one")
	}
	b.give(named("a.test"), []netip.Addr{addr}, 10*time.Minute)
	c.now = c.now.Add(10 * time.Minute)
	if !isValid() || b.count != 1 {
		t.Error("a later answer didn't prolong it")
	}
}

// at are addresses by numbers.
func at(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)}) }

// has says whether a name has an address in the book still.
func has(b *book, name string, addr netip.Addr) bool {
	valid, _ := b.names(addr)
	return slices.Contains(valid, named(name))
}

func TestTheBookIsBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := newBook(c)
	name := func(i int) string { return fmt.Sprintf("n%05d.test", i) }
	kept := netip.MustParseAddr("192.0.2.1")
	b.keep(named("hosts.test"), kept)
	for i := range 2 * maxGrants {
		c.now = c.now.Add(time.Millisecond)
		b.give(named(name(i)), []netip.Addr{at(i)}, time.Hour)
	}
	if b.count > maxGrants || b.count < maxGrants*7/8 || len(b.grants) != b.count {
		t.Errorf("%d grants of %d addresses", b.count, len(b.grants))
	}
	for i, want := range map[int]bool{0: false, maxGrants - 1: false, maxGrants + maxGrants/8 + 1: true, 2*maxGrants - 1: true} {
		if has(b, name(i), at(i)) != want {
			t.Errorf("number %d: %t", i, !want)
		}
	}
	for i := range 2 * maxGrants {
		c.now = c.now.Add(time.Millisecond)
		b.give(named(name(i)), []netip.Addr{kept}, time.Hour)
	}
	if !has(b, "hosts.test", kept) || !has(b, name(2*maxGrants-1), kept) || b.count > maxGrants {
		t.Errorf("%d grants, that of the file of hosts is there: %t", b.count, has(b, "hosts.test", kept))
	}
}

func TestGrantsThatAreOverMakeRoomFirst(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := newBook(c)
	b.give(named("long.test"), []netip.Addr{at(0)}, 20*time.Minute)
	for i := range maxGrants - 2 {
		b.give(named(fmt.Sprintf("n%d.test", i)), []netip.Addr{at(1 + i)}, time.Hour)
	}
	b.give(named("short.test"), []netip.Addr{at(1 << 20)}, 0)
	c.now = c.now.Add(10 * time.Minute)
	b.give(named("new.test"), []netip.Addr{at(1 << 21)}, time.Hour)
	if b.count != maxGrants || !has(b, "long.test", at(0)) || !has(b, "new.test", at(1<<21)) {
		t.Errorf("%d grants", b.count)
	}
}

func TestGrantsWithoutAnEndAreNeverEvicted(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := newBook(c)
	for i := range maxHostsGrants {
		b.keep(named("hosts.test"), at(i))
	}
	for i := range 3 * maxGrants {
		c.now = c.now.Add(time.Millisecond)
		b.give(named(fmt.Sprintf("n%d.test", i%7)), []netip.Addr{at(1<<21 + i)}, time.Hour)
		b.give(named("hosts.test"), []netip.Addr{at(1<<22 + i)}, time.Hour)
	}
	for i := range maxHostsGrants {
		if !has(b, "hosts.test", at(i)) {
			t.Fatalf("number %d is gone", i)
		}
	}
	if b.count > maxGrants {
		t.Errorf("%d grants", b.count)
	}
}

func TestTheAddressesOfHostsAreKept(t *testing.T) {
	t.Parallel()
	c := newClock()
	entries := ParseHosts(strings.NewReader(`# Kubernetes-managed hosts file.
127.0.0.1	localhost
198.51.100.7	Packages.example.com. alias # packages.example.com
198.51.100.8 private.example.org
169.254.169.254 packages.example.com
10.96.0.10 a.wild.example
::ffff:198.51.100.9 packages.example.com
2001:db8::7 packages.example.com
not-an-address packages.example.com
198.51.100.10
`))
	r := configured(t, listing("packages.example.com", "*.wild.example"), func(config *Config) { config.Hosts, config.Now = entries, c.read })
	c.now = c.now.Add(1000 * time.Hour)
	for addr, want := range map[string]bool{
		"198.51.100.7": true, "198.51.100.9": true, "2001:db8::7": true, "127.0.0.1": true,
		"198.51.100.8": false, "169.254.169.254": false, "10.96.0.10": false, "198.51.100.10": false,
	} {
		if canConnect(r, addr) != want {
			t.Errorf("%s: %t", addr, !want)
		}
	}
	if list, _ := r.Denials(); list != nil {
		t.Errorf("refused: %+v", list)
	}
}

func TestHostsAreBounded(t *testing.T) {
	t.Parallel()
	var many []HostsEntry
	for i := range 2 * maxHostsGrants {
		many = append(many, HostsEntry{netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), []string{"a.test"}})
	}
	r := configured(t, listing("a.test"), func(c *Config) { c.Hosts = many })
	if r.book.count != maxHostsGrants {
		t.Errorf("%d grants", r.book.count)
	}
}

func TestARefusalSaysThatAnAddressExpired(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := newNameserver(t, zone(world))
	r := configured(t, listing("packages.example.com"), func(config *Config) {
		config.Nameservers, config.Now = []netip.AddrPort{s.addr}, c.read
	})
	ask(t, r, asksFor, dnsmessage.TypeA)
	to := netip.MustParseAddrPort("198.51.100.7:443")
	if v := r.Decide(to, network.TCP); !v.Allowed {
		t.Fatalf("got %+v", v)
	}
	if v := r.Decide(to, network.UDP); v.Allowed || v.Reason != network.ReasonUDP {
		t.Errorf("by UDP: %+v", v)
	}
	c.now = c.now.Add(306 * time.Second)
	want := network.Verdict{Reason: network.ReasonNotListed, Host: "packages.example.com",
		Rule: "198.51.100.7 was an address of packages.example.com, whose time to live is over: look the name up again"}
	if v := r.Decide(to, network.TCP); v != want {
		t.Errorf("got %+v", v)
	}
	other := netip.MustParseAddrPort("198.51.100.7:22")
	if v := r.Decide(other, network.TCP); v.Allowed || strings.Contains(v.Rule, "look the name up again") {
		t.Errorf("another port: %+v", v)
	}
	ask(t, r, asksFor, dnsmessage.TypeA)
	if v := r.Decide(to, network.TCP); !v.Allowed {
		t.Errorf("after another lookup: %+v", v)
	}
}

// An address that a name no longer has isn't reached by it for longer than it was given out.
func TestRebindingDoesNotReachTheOldAddressForEver(t *testing.T) {
	t.Parallel()
	c := newClock()
	var current atomic.Value
	current.Store("198.51.100.7")
	s := newNameserver(t, func(asked dnsmessage.Message, _ string) [][]byte {
		msg := replyTo(asked)
		msg.Answers = []dnsmessage.Resource{record(asksFor, 0, addrBody(netip.MustParseAddr(current.Load().(string))))}
		return one(msg)
	})
	r := configured(t, listing("packages.example.com"), func(config *Config) {
		config.Nameservers, config.Now = []netip.AddrPort{s.addr}, c.read
	})
	ask(t, r, asksFor, dnsmessage.TypeA)
	current.Store("169.254.169.254")
	c.now = c.now.Add(minTTL)
	if got := addrsOf(t, ask(t, r, asksFor, dnsmessage.TypeA)); got != nil {
		t.Errorf("given out: %q", got)
	}
	if canConnect(r, "169.254.169.254") || !canConnect(r, "198.51.100.7") {
		t.Error("what was given out changed")
	}
	c.now = c.now.Add(grace)
	if canConnect(r, "198.51.100.7") {
		t.Error("the old address is reached for ever")
	}
	if list, _ := r.Denials(); len(list) != 1 || list[0].Host != "packages.example.com" || !strings.Contains(list[0].Rule, "is a metadata address") {
		t.Errorf("refused: %+v", list)
	}
}
