package resolver

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

// BenchmarkLookup is a lookup over a nameserver on loopback, without the client.
func BenchmarkLookup(b *testing.B) {
	s := newNameserver(b, zone(world))
	r := newResolver(b, listing("packages.example.com"), s)
	msg := packed(queryFor(asksFor, dnsmessage.TypeA))
	b.ReportAllocs()
	for b.Loop() {
		if len(r.answer(context.Background(), msg).addrs) != 2 {
			b.Fatal("it isn't answered")
		}
	}
}

// BenchmarkRefusal is what a name of the search list costs.
func BenchmarkRefusal(b *testing.B) {
	r := configured(b, listing("packages.example.com"), func(c *Config) { c.Dial = noDial(b) })
	msg := packed(queryFor("packages.example.com.ns.svc.cluster.local.", dnsmessage.TypeA))
	b.ReportAllocs()
	for b.Loop() {
		if r.answer(context.Background(), msg).code != dnsmessage.RCodeNameError {
			b.Fatal("it is answered")
		}
	}
}

// BenchmarkDecide is what a connection costs, in a full book.
func BenchmarkDecide(b *testing.B) {
	r := configured(b, listing("*.example.com"), func(c *Config) { c.Dial = noDial(b) })
	to := fill(r, maxGrants)
	for b.Loop() {
		if !r.Decide(to, network.TCP).Allowed {
			b.Fatal("it is refused")
		}
	}
}

// fill gives addresses out, and returns the last.
func fill(r *Resolver, count int) (last netip.AddrPort) {
	for i := range count {
		addr := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
		r.book.give(named(fmt.Sprintf("n%d.example.com", i)), []netip.Addr{addr}, maxTTL)
		last = netip.AddrPortFrom(addr, network.DefaultPort)
	}
	return last
}
