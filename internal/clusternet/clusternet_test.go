package clusternet

import (
	"fmt"
	"net/netip"
	"strings"
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
		"with the node's domains":            {"search ns.svc.cluster.local svc.cluster.local cluster.local corp.example lab.example\nnameserver 10.96.0.10\n", "cluster.local", []string{"10.96.0.10:53"}},
		"in a namespace named svc":           {"search svc.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n", "cluster.local", []string{"10.96.0.10:53"}},
		"a node's, with a domain like it":    {"search svc.example.com example.com\nnameserver 192.0.2.53\n", "", []string{"192.0.2.53:53"}},
		"with IPv6, and a domain of its own": {"nameserver fd00::a\nnameserver 10.0.0.10\nsearch a.svc.prod.example. svc.prod.example. prod.example.", "prod.example", []string{"[fd00::a]:53", "10.0.0.10:53"}},
		"a node's, with a stub":              {"nameserver 127.0.0.53\nnameserver ::ffff:127.0.0.8\nnameserver ::1\nnameserver 0.0.0.0\nsearch example.com\n", "", nil},
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

func TestPodsSearchTheNodesDomainsToo(t *testing.T) {
	t.Parallel()
	c := parseResolvConf("search ns.svc.cluster.local svc.cluster.local cluster.local corp.example lab.example\n")
	if diff := cmp.Diff([]string{"corp.example", "lab.example"}, c.search); diff != "" {
		t.Error(diff)
	}
	if c := parseResolvConf("search a.example b.example\n"); len(c.search) > 0 {
		t.Errorf("a node's list became %v", c.search)
	}
	many := parseResolvConf("search ns.svc.c svc.c c " + strings.Repeat("x.example ", 100))
	if len(many.search) != maxSearch {
		t.Errorf("%d domains are left", len(many.search))
	}
}

// Hundreds of nodes have neighbouring networks, which are one.
func TestNeighbouringNetworksAreOne(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 256 {
		many = append(many, fmt.Sprintf("10.244.%d.0/24", 255-i))
	}
	for name, tc := range map[string]struct{ list, want []string }{
		"none":                  {nil, nil},
		"two halves":            {[]string{"10.244.1.0/24", "10.244.0.0/24"}, []string{"10.244.0.0/23"}},
		"neighbours, no halves": {[]string{"10.244.1.0/24", "10.244.2.0/24"}, []string{"10.244.1.0/24", "10.244.2.0/24"}},
		"one within another":    {[]string{"10.244.3.0/24", "10.244.0.0/16", "10.244.0.0/24"}, []string{"10.244.0.0/16"}},
		"the same":              {[]string{"192.0.2.1/32", "192.0.2.1/32"}, []string{"192.0.2.1/32"}},
		"all of a cluster's":    {many, []string{"10.244.0.0/16"}},
		"both families":         {[]string{"fd00::/64", "10.0.0.0/24", "fd00:0:0:1::/64", "10.0.1.0/24"}, []string{"10.0.0.0/23", "fd00::/63"}},
		"everything":            {[]string{"0.0.0.0/1", "128.0.0.0/1", "::/0"}, []string{"0.0.0.0/0", "::/0"}},
	} {
		var got []string
		for _, p := range merged(appendNetworks(nil, tc.list)) {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestNetworksAreListedOnce(t *testing.T) {
	t.Parallel()
	got := merged(appendNetworks(nil, []string{"10.96.0.0/12", "10.96.0.1/12", "x", "fd00::/108"}))
	want := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00::/108")}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v", got)
	}
}
