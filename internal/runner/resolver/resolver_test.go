package resolver

import (
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

func TestRoutesAreThoseOfAddressesThatCanBeReached(t *testing.T) {
	t.Parallel()
	rules := listing("packages.example.com")
	rules.Allowed[0].Ports = []int{22}
	r := newResolver(t, rules, newNameserver(t, zone(world)))
	public := netip.MustParseAddr("198.51.100.7")
	if v := r.Decide(netip.AddrPortFrom(public, 0), network.RouteLookup); v.Allowed || v.Reason != network.ReasonNotListed {
		t.Errorf("before the lookup: %+v", v)
	}
	ask(t, r, asksFor, dnsmessage.TypeA)
	for addr, want := range map[string]bool{
		"198.51.100.7": true, "::ffff:198.51.100.7": true, "127.0.0.1": true, "198.51.100.9": false, "169.254.169.254": false, "127.0.0.53": false,
	} {
		if v := r.Decide(netip.AddrPortFrom(netip.MustParseAddr(addr), 0), network.RouteLookup); v.Allowed != want {
			t.Errorf("%s: %+v", addr, v)
		}
	}
	if v := r.Decide(netip.AddrPort{}, network.RouteLookup); v.Allowed {
		t.Errorf("no address: %+v", v)
	}
}
