package clusternet

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheNameserversAndTheDomainComeFromResolvConf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text        string
		domain      string
		nameservers []string
	}{
		"a pod's":                            {"search ns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n", "cluster.local", []string{"10.96.0.10:53"}},
		"with IPv6, and a domain of its own": {"nameserver fd00::a\nnameserver 10.0.0.10\nsearch a.svc.prod.example. svc.prod.example. prod.example.", "prod.example", []string{"[fd00::a]:53", "10.0.0.10:53"}},
		"a node's, with a stub":              {"nameserver 127.0.0.53\nsearch example.com\n", "", nil},
		"with nonsense":                      {"nameserver\nnameserver x\nsearch\n# nameserver 1.1.1.1\n", "", nil},
		"empty":                              {"", "", nil},
	} {
		c := parseResolvConf(tc.text)
		var got []string
		for _, server := range c.nameservers {
			got = append(got, server.String())
		}
		if diff := cmp.Diff(tc.nameservers, got); diff != "" || c.domain != tc.domain {
			t.Errorf("%s: domain %q, nameservers (-want +got)\n%s", name, c.domain, diff)
		}
	}
}

func TestNetworksAreListedOnce(t *testing.T) {
	t.Parallel()
	got := appendNetworks(nil, []string{"10.96.0.0/12", "10.96.0.1/12", "x", "fd00::/108"})
	want := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00::/108")}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v", got)
	}
}
