package network

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// surroundings are a cluster's.
var surroundings = Surroundings{
	Node:      []netip.Addr{netip.MustParseAddr("192.168.5.10"), netip.MustParseAddr("2001:db8:5::10")},
	APIServer: []netip.Addr{netip.MustParseAddr("203.0.113.6")}, APIServerService: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
	Pod:      []netip.Addr{netip.MustParseAddr("10.244.3.99"), netip.MustParseAddr("fd10::99")},
	Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	Pods:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd10::/64")},
	Domain:   "cluster.local",
}

func listed(entries ...Entry) *Rules {
	return &Rules{Mode: Listed, Allowed: entries, Surroundings: surroundings}
}

// podAt gives the pod an address.
func podAt(addr string) func(*Rules) {
	return func(r *Rules) { r.Surroundings.Pod = []netip.Addr{netip.MustParseAddr(addr)} }
}

func podsUnknown(r *Rules) { r.Surroundings.Pods = nil }

func open(entries ...Entry) *Rules {
	return &Rules{Mode: Open, Allowed: entries, Surroundings: surroundings}
}

// lookedUp reads names with spaces between. An alias has its target after ">".
func lookedUp(text string) (list []LookedUp) {
	for field := range strings.FieldsSeq(text) {
		name, target, isAlias := strings.Cut(field, ">")
		if !isAlias {
			target = name
		}
		list = append(list, LookedUp{Name: name, Target: target})
	}
	return list
}

func (r *Rules) with(change func(*Rules)) *Rules {
	change(r)
	return r
}

func compiled(t testing.TB, r *Rules) *Decider {
	t.Helper()
	d, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	packages = Entry{Host: "packages.example.com"}
	service  = Entry{Host: "a.ns.svc.cluster.local"}
)

// connectionCase is a decision. Names are as in lookedUp.
type connectionCase struct {
	sentence string
	rules    *Rules
	to       string
	names    string
	reason   Reason
	rule     string
}

var connections = []connectionCase{
	{"a name that was looked up reaches its default port", listed(packages), "198.51.100.7:443", "packages.example.com", "", ""},
	{"an address that wasn't looked up reaches nothing", listed(packages), "198.51.100.7:443", "", ReasonNotListed,
		"198.51.100.7:443 isn't in the policy's network.allowed: add {host: 198.51.100.7, ports: [443]}"},
	{"another port is told apart", listed(packages), "198.51.100.7:22", "packages.example.com", ReasonNotListed,
		"packages.example.com:22 (198.51.100.7) isn't in the policy's network.allowed, which has packages.example.com with ports [443]: add 22 to its ports"},
	{"a database isn't listed", listed(packages), "10.0.0.7:5432", "", ReasonNotListed,
		"10.0.0.7:5432 isn't in the policy's network.allowed: add {host: 10.0.0.7, ports: [5432]}"},
	{"an IPv6 address with a port has brackets", listed(packages), "[2001:db8::7]:5432", "", ReasonNotListed,
		"[2001:db8::7]:5432 isn't in the policy's network.allowed: add {host: 2001:db8::7, ports: [5432]}"},
	{"a refusal tells what an address stands for", listed(packages), "[64:ff9b::198.51.100.7]:22", "", ReasonNotListed,
		"[64:ff9b::c633:6407]:22 (which stands for 198.51.100.7) isn't in the policy's network.allowed: add {host: 64:ff9b::c633:6407, ports: [22]}"},
	{"a refusal tells what a name's address stands for", listed(packages), "[64:ff9b::198.51.100.7]:22", "packages.example.com", ReasonNotListed,
		"packages.example.com:22 (64:ff9b::c633:6407, which stands for 198.51.100.7) isn't in the policy's network.allowed, which has packages.example.com with ports [443]: add 22 to its ports"},
	{"a refusal tells each address that one may stand for", listed(), "[2001:0:c000:201::3fff:fdfd]:22", "", ReasonNotListed,
		"[2001:0:c000:201::3fff:fdfd]:22 (which stands for 192.0.2.1 or 192.0.2.2) isn't in the policy's network.allowed: add {host: 2001:0:c000:201::3fff:fdfd, ports: [22]}"},
	{"entries of one host add their ports", listed(packages, Entry{Host: "packages.example.com", Ports: []int{80}}), "198.51.100.7:80", "packages.example.com", "", ""},
	{"a wildcard names one label", listed(Entry{Host: "*.example.com"}), "198.51.100.7:443", "a.example.com", "", ""},
	{"a wildcard names more labels", listed(Entry{Host: "*.example.com"}), "198.51.100.7:443", "c.b.a.example.com", "", ""},
	{"a wildcard doesn't name its parent", listed(Entry{Host: "*.example.com"}), "198.51.100.7:443", "example.com", ReasonNotListed,
		"example.com:443 (198.51.100.7) isn't in the policy's network.allowed: add {host: example.com, ports: [443]}"},
	{"a wildcard doesn't name a longer label", listed(Entry{Host: "*.example.com"}), "198.51.100.7:443", "badexample.com", ReasonNotListed, ""},
	{"an address is listed", listed(Entry{Host: "10.0.0.7", Ports: []int{5432}}), "10.0.0.7:5432", "", "", ""},
	{"a network is listed", listed(Entry{Host: "10.0.0.0/24", Ports: []int{5432}}), "10.0.0.7:5432", "", "", ""},
	{"the address after the network isn't", listed(Entry{Host: "10.0.0.0/24", Ports: []int{5432}}), "10.0.1.0:5432", "", ReasonNotListed, ""},
	{"a mapped address is the IPv4 one", listed(Entry{Host: "10.0.0.0/24", Ports: []int{5432}}), "[::ffff:10.0.0.7]:5432", "", "", ""},
	{"nothing is listed", listed(), "198.51.100.7:443", "packages.example.com", ReasonNotListed, ""},
	{"mode Open reaches what isn't denied", open(), "198.51.100.7:22", "", "", ""},
	{"mode None reaches nothing", &Rules{Mode: None}, "198.51.100.7:443", "", ReasonModeNone,
		"198.51.100.7:443 is refused, as the policy's network.mode is None: set mode Listed, and add {host: 198.51.100.7, ports: [443]} to network.allowed"},
	{"mode None reaches loopback", &Rules{Mode: None}, "127.0.0.1:8080", "", "", ""},
	{"mode Listed reaches loopback", listed(), "[::1]:8080", "", "", ""},
	{"all of 127.0.0.0/8 is loopback", listed(), "127.8.9.10:53", "", "", ""},
	{"resolvers aren't in reach", open(), "127.0.0.53:1234", "", ReasonResolver, "127.0.0.53 is the address of the calls' resolvers, which no policy allows: ask the nameserver of /etc/resolv.conf"},
	{"resolvers aren't in reach in mode None", &Rules{Mode: None}, "127.0.0.53:1234", "", ReasonResolver, ""},
	{"resolvers aren't in reach though listed", listed(Entry{Host: "127.0.0.0/8"}), "127.0.0.53:443", "", ReasonResolver, ""},
	{"resolvers aren't in reach in IPv6 notation", open(), "[::ffff:127.0.0.53]:1234", "", ReasonResolver, ""},
	{"the address beside the resolvers' is loopback", open(), "127.0.0.54:1234", "", "", ""},
	{"0.0.0.0 is loopback", listed(), "0.0.0.0:8080", "", "", ""},
	{":: is loopback", listed(), "[::]:8080", "", "", ""},
	{"the mapped 0.0.0.0 is loopback", listed(), "[::ffff:0.0.0.0]:8080", "", "", ""},
	{"loopback can be denied", open().with(func(r *Rules) { r.DeniedCIDRs = []string{"127.0.0.0/8"} }), "127.0.0.1:80", "", ReasonDeniedCIDR, ""},
	{"then 0.0.0.0 is too", open().with(func(r *Rules) { r.DeniedCIDRs = []string{"127.0.0.0/8"} }), "0.0.0.0:80", "", ReasonDeniedCIDR, ""},
	{"a denied network wins over an entry", listed(Entry{Host: "10.0.0.7"}).with(func(r *Rules) { r.DeniedCIDRs = []string{"10.0.0.0/8"} }), "10.0.0.7:443", "", ReasonDeniedCIDR,
		"10.0.0.7 is in 10.0.0.0/8 of the policy's network.deniedCIDRs, which win over everything: take it out of them, or use another address"},
	{"a denied network wins over a name", listed(packages).with(func(r *Rules) { r.DeniedCIDRs = []string{"198.51.100.0/24"} }), "198.51.100.7:443", "packages.example.com", ReasonDeniedCIDR,
		"198.51.100.7 (packages.example.com) is in 198.51.100.0/24 of the policy's network.deniedCIDRs, which win over everything: take it out of them, or use another address"},
	{"the metadata address is denied", open(), "169.254.169.254:80", "", ReasonMetadata, "169.254.169.254 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	{"the IPv6 metadata address is denied", open(), "[fd00:ec2::254]:80", "", ReasonMetadata, "fd00:ec2::254 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	{"Amazon's other services are denied in IPv6", open(), "[fd00:ec2::23]:80", "", ReasonMetadata, "fd00:ec2::23 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	{"Amazon's network ends", open(), "[fd00:ec3::254]:80", "", "", ""},
	{"Google's IPv6 metadata address is denied", open(), "[fd20:ce::254]:80", "", ReasonMetadata, "fd20:ce::254 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	{"Alibaba's metadata address is denied", open(), "100.100.100.200:80", "", ReasonMetadata, "100.100.100.200 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	{"Azure's WireServer is denied", open(), "168.63.129.16:80", "", ReasonMetadata, "168.63.129.16 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	{"Oracle's metadata address is denied", open(), "192.0.0.192:80", "", ReasonMetadata, "192.0.0.192 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	{"an address beside isn't denied", open(), "100.100.100.201:80", "", "", ""},
	{"link-local addresses are denied", open(), "[fe80::1]:80", "", ReasonMetadata, "fe80::1 is a link-local address, which no policy allows: use another address of the host"},
	{"a listed network doesn't open the metadata address", listed(Entry{Host: "0.0.0.0/0", Ports: []int{80}}), "169.254.169.254:80", "", ReasonMetadata, ""},
	{"nor does an entry with the address itself", listed(Entry{Host: "169.254.169.254", Ports: []int{80}}), "169.254.169.254:80", "", ReasonMetadata, ""},
	{"the node is denied", open(), "192.168.5.10:10250", "", ReasonNode, "192.168.5.10 is an address of the node, which no policy allows: put a Service before what listens there, and allow that one"},
	{"the node is denied though listed", listed(Entry{Host: "192.168.5.10", Ports: []int{10250}}), "192.168.5.10:10250", "", ReasonNode, ""},
	{"the node is denied in IPv6", open(), "[2001:db8:5::10]:10250", "", ReasonNode, ""},
	{"the API server is denied", open(), "203.0.113.6:6443", "", ReasonAPIServer, "203.0.113.6 is an address of the cluster's API server, which no policy allows: have a server of your own make the requests, and allow that one"},
	{"the API server is denied though the cluster is allowed", open().with(func(r *Rules) { r.AllowInCluster = true }), "10.96.0.1:443", "kubernetes.default.svc.cluster.local", ReasonAPIServer, ""},
	{"hosts keep what they name", open().with(func(r *Rules) { r.Hosts = []string{"*.example.com"} }), "198.51.100.7:22", "a.example.com", "", ""},
	{"hosts take away the rest", open().with(func(r *Rules) { r.Hosts = []string{"*.example.com"} }), "198.51.100.7:22", "a.example.org", ReasonNotInHosts,
		"a.example.org:22 (198.51.100.7) isn't in the call's network.hosts: add a.example.org to it, or leave hosts out"},
	{"hosts take away what the policy lists", listed(packages, Entry{Host: "10.0.0.0/8"}).with(func(r *Rules) { r.Hosts = []string{"10.1.0.0/16"} }), "10.2.0.1:443", "", ReasonNotInHosts, ""},
	{"hosts add nothing to the policy", listed(packages).with(func(r *Rules) { r.Hosts = []string{"other.example.com"} }), "198.51.100.7:443", "other.example.com", ReasonNotListed, ""},
	{"two names of an address lend each other nothing", listed(packages, Entry{Host: "other.example.com", Ports: []int{22}}).with(func(r *Rules) { r.Hosts = []string{"packages.example.com"} }),
		"198.51.100.7:22", "other.example.com packages.example.com", ReasonNotInHosts, ""},
}

func TestConnections(t *testing.T) {
	t.Parallel()
	for _, tc := range slices.Concat(connections, clusterConnections) {
		t.Run(tc.sentence, func(t *testing.T) {
			t.Parallel()
			got := compiled(t, tc.rules).Decide(Connection{To: netip.MustParseAddrPort(tc.to), Names: lookedUp(tc.names)})
			checkVerdict(t, got, tc.reason, tc.rule)
		})
	}
}

func checkVerdict(t *testing.T, got Verdict, reason Reason, rule string) {
	t.Helper()
	if got.Allowed != (reason == "") || got.Reason != reason || rule != "" && got.Rule != rule {
		t.Errorf("got %+v, want %q: %s", got, reason, rule)
	}
	if !got.Allowed && (got.Rule == "" || got.Host == "") {
		t.Errorf("the refusal says too little: %+v", got)
	}
}

func TestUDP(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("198.51.100.7:443")
	packages := Entry{Host: "198.51.100.7"}
	withUDP := func(r *Rules) { r.UDP = true }
	for sentence, tc := range map[string]struct {
		rules  *Rules
		to     netip.AddrPort
		reason Reason
		rule   string
	}{
		"UDP is refused to what is listed": {listed(packages), to, ReasonUDP, "UDP to 198.51.100.7:443 is refused: use TCP, or set the policy's network.udp"},
		"UDP is refused in mode Open":      {open(), to, ReasonUDP, ""},
		"UDP is refused on loopback":       {open(), netip.MustParseAddrPort("127.0.0.1:53"), ReasonUDP, ""},
		"UDP reaches loopback":             {listed().with(withUDP), netip.MustParseAddrPort("127.0.0.1:53"), "", ""},
		"UDP reaches what is listed":       {listed(packages).with(withUDP), to, "", ""},
		"UDP reaches nothing else":         {listed().with(withUDP), to, ReasonNotListed, ""},
		"UDP doesn't reach what is denied": {open().with(withUDP), netip.MustParseAddrPort("169.254.169.254:53"), ReasonMetadata, ""},
		"UDP needs a mode too":             {&Rules{Mode: None, UDP: true}, to, ReasonModeNone, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checkVerdict(t, compiled(t, tc.rules).Decide(Connection{To: tc.to, Protocol: UDP}), tc.reason, tc.rule)
		})
	}
}

func TestProtocolsThatAreNotKnownAreRefused(t *testing.T) {
	t.Parallel()
	d := compiled(t, open().with(func(r *Rules) { r.UDP = true }))
	for _, to := range []string{"198.51.100.7:443", "127.0.0.1:80"} {
		for _, protocol := range []Protocol{RouteLookup + 1, 255} {
			got := d.Decide(Connection{To: netip.MustParseAddrPort(to), Protocol: protocol})
			checkVerdict(t, got, ReasonProtocol, to+" is refused, as its protocol isn't known: use TCP")
		}
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	for sentence, tc := range map[string]struct {
		rules  *Rules
		name   string
		reason Reason
		rule   string
	}{
		"a listed name is looked up":            {listed(Entry{Host: "a.example.com", Ports: []int{22}}), "a.example.com", "", ""},
		"a name below a wildcard is looked up":  {listed(Entry{Host: "*.example.com"}), "a.b.example.com", "", ""},
		"every name is looked up in mode Open":  {open(), "anything.test", "", ""},
		"a name that isn't listed is refused":   {listed(), "b.example.com", ReasonNotListed, "b.example.com isn't in the policy's network.allowed: add {host: b.example.com}"},
		"no name is looked up in mode None":     {&Rules{Mode: None}, "b.example.com", ReasonModeNone, ""},
		"hosts narrow lookups in mode Open":     {open().with(func(r *Rules) { r.Hosts = []string{"a.test"} }), "b.test", ReasonNotInHosts, "b.test isn't in the call's network.hosts: add b.test to it, or leave hosts out"},
		"hosts narrow lookups in mode Listed":   {listed(Entry{Host: "*.test"}).with(func(r *Rules) { r.Hosts = []string{"a.test"} }), "b.test", ReasonNotInHosts, ""},
		"a wildcard names no pods":              {listed(Entry{Host: "*.cluster.local"}), "10-244-3-4.ns.pod.cluster.local", ReasonNotListed, ""},
		"hosts of addresses alone keep no name": {open().with(func(r *Rules) { r.Hosts = []string{"192.0.2.1"} }), "a.test", ReasonNotInHosts, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checkVerdict(t, compiled(t, tc.rules).Lookup(tc.name), tc.reason, tc.rule)
		})
	}
}

func TestOnlyModeOpenWithoutHostsIsOpen(t *testing.T) {
	t.Parallel()
	for sentence, tc := range map[string]struct {
		rules *Rules
		want  bool
	}{
		"mode Open":            {open(), true},
		"mode Open with hosts": {open().with(func(r *Rules) { r.Hosts = []string{"a.test"} }), false},
		"mode Listed":          {listed(Entry{Host: "0.0.0.0/0"}), false},
		"mode None":            {&Rules{Mode: None}, false},
	} {
		if got := compiled(t, tc.rules).IsOpen(); got != tc.want {
			t.Errorf("%s: %t", sentence, got)
		}
	}
}

func TestReachableAsksForAnyPort(t *testing.T) {
	t.Parallel()
	d := compiled(t, listed(Entry{Host: "a.example.com", Ports: []int{22}}, Entry{Host: "*.example.org"}, Entry{Host: "a.ns.svc.cluster.local", Ports: []int{22}}))
	clustered, public := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("198.51.100.7")
	for sentence, tc := range map[string]struct {
		addr   netip.Addr
		name   string
		reason Reason
	}{
		"a listed name":                    {public, "a.example.com", ""},
		"a public name in the cluster":     {clustered, "a.example.com", ""},
		"a name of the cluster":            {clustered, "a.ns.svc.cluster.local", ""},
		"a wildcard's name in the cluster": {clustered, "a.example.org", ReasonInCluster},
		"a name that points at metadata":   {netip.MustParseAddr("169.254.169.254"), "a.example.com", ReasonMetadata},
		"a name that points at loopback":   {netip.MustParseAddr("127.0.0.1"), "a.example.com", ""},
		"no address":                       {netip.Addr{}, "a.example.com", ReasonNoAddress},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checkVerdict(t, d.Reachable(tc.addr, lookedUp(tc.name)...), tc.reason, "")
		})
	}
}

func TestConnectionsWithoutAnAddressOrAPortAreRefused(t *testing.T) {
	t.Parallel()
	d := compiled(t, open())
	for _, to := range []netip.AddrPort{{}, netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), 0)} {
		if got := d.Decide(Connection{To: to}); got.Allowed || got.Reason != ReasonNoAddress {
			t.Errorf("%v: %+v", to, got)
		}
	}
}

func TestRulesTravelAsJSON(t *testing.T) {
	t.Parallel()
	want := listed(Entry{Host: "a.example.com"}, Entry{Host: "10.0.0.0/8", Ports: []int{80, 443}})
	want.DeniedCIDRs, want.Hosts, want.UDP, want.AllowInCluster = []string{"10.1.0.0/16"}, []string{"a.example.com"}, true, true
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &Rules{}
	err = json.Unmarshal(raw, got)
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func problemsOf(t *testing.T, err error) []string {
	t.Helper()
	var list []string
	var one *Error
	if err != nil && !errors.As(err, &one) {
		t.Fatalf("it isn't an *Error: %v", err)
	}
	if err != nil {
		list = strings.Split(err.Error(), "\n")
	}
	return list
}
