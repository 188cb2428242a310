package network

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// oracle decides by the text of Rules, slowly: addresses are strings of binary digits, names are lists of labels.
type oracle struct{ r *Rules }

// bits is an address in binary digits, after its family.
func bits(addr netip.Addr) string {
	addr = addr.Unmap()
	text := "6"
	if addr.Is4() {
		text = "4"
	}
	for _, b := range addr.AsSlice() {
		text += fmt.Sprintf("%08b", b)
	}
	return text
}

// prefixBits are the binary digits that all addresses of a network start with.
func prefixBits(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil {
		return bits(p.Addr())[:1+p.Bits()]
	}
	return bits(netip.MustParseAddr(text))
}

// standsFor are the digits of the address, and of the IPv4 ones in it that the fuzzed rules know.
func standsFor(addr netip.Addr) []string {
	all := []string{bits(addr)}
	digits := all[0]
	take := func(from int) { all = append(all, "4"+digits[1+from:1+from+32]) }
	switch {
	case strings.HasPrefix(digits, prefixBits("64:ff9b::/96")), strings.HasPrefix(digits, prefixBits("::/96")) && digits != bits(netip.MustParseAddr("::1")):
		take(96)
	case strings.HasPrefix(digits, prefixBits("2002::/16")):
		take(16)
	}
	return all
}

func isName(host string) bool { return strings.ContainsAny(host, "ghijklmnopqrstuvwxyz*") }

// nameMatches compares labels from the end.
func nameMatches(host, name string) bool {
	h, n := strings.Split(host, "."), strings.Split(name, ".")
	if h[0] != "*" {
		return slices.Equal(h, n)
	}
	if strings.HasSuffix(name, ".pod.cluster.local") {
		return false
	}
	h = h[1:]
	return len(n) > len(h) && slices.Equal(n[len(n)-len(h):], h)
}

// matches says whether a host names this witness: an address as digits, or a name.
func matches(host, witness string, address bool) bool {
	if isName(host) == address {
		return false
	}
	if address {
		return strings.HasPrefix(witness, prefixBits(host))
	}
	return nameMatches(host, witness)
}

func (o oracle) allows(to netip.AddrPort, names []LookedUp) bool {
	addr := to.Addr().Unmap()
	switch addr.String() {
	case "0.0.0.0":
		addr = netip.MustParseAddr("127.0.0.1")
	case "::":
		addr = netip.MustParseAddr("::1")
	}
	for _, digits := range standsFor(addr) {
		if o.denies(digits) {
			return false
		}
	}
	if strings.HasPrefix(bits(addr), prefixBits("127.0.0.0/8")) || addr.String() == "::1" || addr.String() == "10.1.0.9" {
		return true
	}
	if o.r.Mode == None {
		return false
	}
	// A witness must pass all rules alone, the cluster's included.
	for _, w := range append([]LookedUp{{}}, names...) {
		if o.witness(addr, to.Port(), w) {
			return true
		}
	}
	return false
}

func (o oracle) denies(digits string) bool {
	list := slices.Concat(o.r.DeniedCIDRs, []string{"169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "127.0.0.53"})
	for _, a := range slices.Concat(o.r.Surroundings.Node, o.r.Surroundings.APIServer, o.r.Surroundings.APIServerService) {
		list = append(list, a.String())
	}
	return slices.ContainsFunc(list, func(text string) bool { return strings.HasPrefix(digits, prefixBits(text)) })
}

// witness says whether the address itself, or with the name, passes.
func (o oracle) witness(addr netip.Addr, port uint16, n LookedUp) bool {
	what, address := n.Name, n.Name == ""
	if address {
		what = bits(addr)
	}
	if !o.covers(what, address) {
		return false
	}
	in := o.clustered(addr)
	if strings.HasSuffix(n.Name, ".cluster.local") && !slices.Contains(in, bits(addr)) {
		return false
	}
	listed := o.r.Mode == Open || len(o.entries(what, port, address)) > 0
	return listed && (o.r.AllowInCluster || len(in) == 0 || o.opens(addr, port, n))
}

// opens says whether an entry names what the address, with the name, is in the cluster. An address opens what the call's hosts
// name by its name.
func (o oracle) opens(addr netip.Addr, port uint16, n LookedUp) bool {
	if in := o.clustered(addr); len(in) != 1 || in[0] != bits(addr) {
		return false
	}
	names := func(name string) bool {
		return name != "" && o.covers(name, false) && slices.ContainsFunc(o.entries(name, port, false), func(host string) bool { return host == name || strings.HasSuffix(host, ".cluster.local") })
	}
	return len(o.entries(bits(addr), port, true)) > 0 || names(n.Name) && (!strings.HasSuffix(n.Name, ".cluster.local") || names(n.Target))
}

func (o oracle) covers(what string, address bool) bool {
	return len(o.r.Hosts) == 0 || slices.ContainsFunc(o.r.Hosts, func(h string) bool { return matches(h, what, address) })
}

// entries are the hosts of the entries that allow the port of an address or of a name.
func (o oracle) entries(what string, port uint16, address bool) (found []string) {
	for _, e := range o.r.Allowed {
		ports := e.Ports
		if len(ports) == 0 {
			ports = []int{443}
		}
		if slices.Contains(ports, int(port)) && matches(e.Host, what, address) {
			found = append(found, e.Host)
		}
	}
	return found
}

// clustered are the digits of all that the address stands for in the cluster.
func (o oracle) clustered(addr netip.Addr) (in []string) {
	for _, digits := range standsFor(addr) {
		if slices.ContainsFunc(slices.Concat(o.r.Surroundings.Services, o.r.Surroundings.Pods), func(p netip.Prefix) bool { return strings.HasPrefix(digits, prefixBits(p.String())) }) {
			in = append(in, digits)
		}
	}
	return in
}

// Few values, so that they meet often.
var (
	fuzzHosts = []string{"a.test", "b.a.test", "*.test", "*.a.test", "*.cluster.local", "s.cluster.local", "*.local", "10.0.0.0/8", "10.1.0.0/16", "10.1.0.7",
		"0.0.0.0/0", "::/0", "64:ff9b::/96", "2002::/16", "192.0.2.7", "fd10::/64", "169.254.0.0/15", "a.cluster.local", "a.pod.cluster.local", "*.pod.cluster.local"}
	fuzzNames = []string{"a.test", "b.a.test", "c.b.a.test", "test", "s.cluster.local", "a.cluster.local", "cluster.local", "local", "xtest", "a.xtest", "a.pod.cluster.local"}
	fuzzAddrs = []string{"10.1.0.7", "10.1.0.8", "10.1.0.9", "64:ff9b::a01:9", "10.2.0.1", "192.0.2.7", "198.51.100.1", "198.51.100.2", "169.254.169.254", "127.0.0.1", "127.0.0.53", "0.0.0.0", "::", "::1", "fd10::5", "fe80::1",
		"fd00:ec2::254", "64:ff9b::a01:7", "64:ff9b::a9fe:a9fe", "2002:a01:7::1", "2002:a9fe:a9fe::", "::ffff:10.1.0.7", "::10.1.0.7", "192.168.5.10", "64:ff9b::c000:207", "2001:db8::1"}
	fuzzDenied  = []string{"10.0.0.0/8", "10.1.0.0/24", "192.0.2.0/24", "0.0.0.0/0", "::/0", "127.0.0.0/8", "64:ff9b::/96", "::1/128"}
	fuzzCluster = []string{"10.1.0.0/16", "fd10::/64", "192.0.2.0/24", "64:ff9b::/96"}
	fuzzPorts   = []int{443, 80, 22}
)

func pick[T any](r *rand.Rand, from []T, most int) (list []T) {
	for range r.IntN(most + 1) {
		list = append(list, from[r.IntN(len(from))])
	}
	return list
}

// pickNames returns names, some of them aliases.
func pickNames(r *rand.Rand, most int) (list []LookedUp) {
	for _, name := range pick(r, fuzzNames, most) {
		n := LookedUp{Name: name, Target: name}
		if r.IntN(2) == 0 {
			n.Target = fuzzNames[r.IntN(len(fuzzNames))]
		}
		list = append(list, n)
	}
	return list
}

func randomRules(r *rand.Rand) *Rules {
	rules := &Rules{
		Mode: []Mode{None, Listed, Listed, Open}[r.IntN(4)], DeniedCIDRs: pick(r, fuzzDenied, 1), AllowInCluster: r.IntN(4) == 0,
		Hosts: pick(r, fuzzHosts, 2),
		Surroundings: Surroundings{Node: []netip.Addr{netip.MustParseAddr("192.168.5.10")}, APIServer: []netip.Addr{netip.MustParseAddr("10.1.0.8")},
			APIServerService: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Pod: []netip.Addr{netip.MustParseAddr("10.1.0.9")},
			Services: []netip.Prefix{netip.MustParsePrefix("172.20.0.0/16")}, Domain: "cluster.local"},
	}
	for _, text := range append(pick(r, fuzzCluster, 2), "172.21.0.0/16") {
		rules.Surroundings.Pods = append(rules.Surroundings.Pods, netip.MustParsePrefix(text))
	}
	for _, host := range pick(r, fuzzHosts, 4) {
		rules.Allowed = append(rules.Allowed, Entry{Host: host, Ports: pick(r, fuzzPorts, 2)})
	}
	return rules
}

func FuzzDecisionsAgreeWithTheOracle(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		compareWithOracle(t, seed)
	})
}

func TestDecisionsAgreeWithTheOracle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		compareWithOracle(t, seed)
	}
}

func compareWithOracle(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	rules := randomRules(r)
	d, err := Compile(rules)
	if err != nil {
		t.Fatalf("%+v: %v", rules, err)
	}
	without := *rules
	without.Hosts = nil
	wider := compiled(t, &without)
	for range 20 {
		to := netip.AddrPortFrom(netip.MustParseAddr(fuzzAddrs[r.IntN(len(fuzzAddrs))]), uint16(fuzzPorts[r.IntN(len(fuzzPorts))]))
		names := pickNames(r, 2)
		got, want := d.Decide(Connection{To: to, Names: names}), oracle{rules}.allows(to, names)
		if got.Allowed != want {
			t.Fatalf("seed %d: %v for %q by %+v: got %+v, want %t", seed, to, names, rules, got, want)
		}
		if got.Allowed && !d.Reachable(to.Addr(), names...).Allowed {
			t.Fatalf("seed %d: %v for %q by %+v is allowed and not reachable", seed, to, names, rules)
		}
		if got.Allowed && !wider.Decide(Connection{To: to, Names: names}).Allowed {
			t.Fatalf("seed %d: %v for %q: hosts of %+v allow more", seed, to, names, rules)
		}
	}
}

// A host that is covered leaves nothing that the rules don't allow, and one that isn't covered is an error.
func FuzzNarrowingNeverWidens(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		rules := randomRules(r)
		narrow, err := Narrow(rules, pick(r, fuzzHosts, 3))
		if err != nil {
			return
		}
		wide, kept := compiled(t, rules), compiled(t, narrow)
		for _, addr := range fuzzAddrs {
			for _, port := range fuzzPorts {
				c := Connection{To: netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)), Names: pickNames(r, 2)}
				if kept.Decide(c).Allowed && !wide.Decide(c).Allowed {
					t.Fatalf("seed %d: %v: %+v allow more than %+v", seed, c, narrow, rules)
				}
			}
		}
		for _, name := range fuzzNames {
			if kept.Lookup(name).Allowed && !wide.Lookup(name).Allowed {
				t.Fatalf("seed %d: %s is looked up by %+v", seed, name, narrow)
			}
		}
	})
}

func FuzzHosts(f *testing.F) {
	for _, text := range append(fuzzHosts, "a..b", "*.*", "1.2.3", "::ffff:1.2.3.4/100", "fe80::1%x", "[::1]:2", "\xff", "A.") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHost(text)
		if err != nil {
			return
		}
		again, err := parseHost(h.String())
		if err != nil || again != h {
			t.Fatalf("%q became %q, which became %q, %v", text, h, again, err)
		}
		if !h.contains(h) || h.prefix.IsValid() && (h.prefix != h.prefix.Masked() || h.prefix.Addr().Is4In6() || h.prefix.Addr().Zone() != "") {
			t.Fatalf("%q became %q", text, h)
		}
	})
}
