package network

import (
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// attempt is a connection under rules.
type attempt struct {
	rules Rules
	to    Connection
}

func (a attempt) decide(t *testing.T) Verdict {
	t.Helper()
	return compiled(t, &a.rules).Decide(a.to)
}

const nothingPasses = "which no policy allows"

var (
	entryInText = regexp.MustCompile(`add \{host: (\S+?)(?:, ports: \[(\d+)\])?\}`)
	portInText  = regexp.MustCompile(`which has (\S+) with ports .*: add (\d+) to its ports`)
	hostsInText = regexp.MustCompile(`(\S+) to (?:it|the call's network\.hosts), or leave hosts out`)
	rangeInText = regexp.MustCompile(`is in (\S+) of the policy's network\.deniedCIDRs`)
	otherInText = regexp.MustCompile(`connect to (\S+) itself`)
)

// follow does what the text of a refusal says, in each of the ways that it gives.
func follow(t *testing.T, a attempt, rule string) []attempt {
	t.Helper()
	ways := []attempt{a}
	each := func(changes ...func(*attempt)) {
		var all []attempt
		for _, way := range ways {
			for _, change := range changes {
				one := way
				one.rules.Allowed, one.rules.Hosts = slices.Clone(way.rules.Allowed), slices.Clone(way.rules.Hosts)
				one.rules.DeniedCIDRs = slices.Clone(way.rules.DeniedCIDRs)
				change(&one)
				all = append(all, one)
			}
		}
		ways = all
	}
	says := func(part string) bool { return strings.Contains(rule, part) }
	if m := rangeInText.FindStringSubmatch(rule); m != nil {
		each(func(a *attempt) {
			a.rules.DeniedCIDRs = slices.DeleteFunc(a.rules.DeniedCIDRs, func(text string) bool { return text == m[1] })
		})
	}
	if says("set the policy's network.udp") {
		each(func(a *attempt) { a.to.Protocol = TCP }, func(a *attempt) { a.rules.UDP = true })
	}
	if says("set mode Listed") {
		each(func(a *attempt) { a.rules.Mode = Listed })
	}
	entry := func(host, port string) func(*attempt) {
		return func(a *attempt) {
			e := Entry{Host: host}
			if port != "" {
				number, err := strconv.Atoi(port)
				if err != nil {
					t.Fatal(err)
				}
				e.Ports = []int{number}
			}
			a.rules.Allowed = append(a.rules.Allowed, e)
		}
	}
	var opens []func(*attempt)
	if m := entryInText.FindStringSubmatch(rule); m != nil {
		opens = append(opens, entry(m[1], m[2]))
	}
	if m := portInText.FindStringSubmatch(rule); m != nil {
		opens = append(opens, entry(m[1], m[2]))
	}
	if m := otherInText.FindStringSubmatch(rule); m != nil {
		to := netip.AddrPortFrom(netip.MustParseAddr(m[1]), a.to.To.Port())
		each(func(a *attempt) { a.to.To = to })
	}
	if says("set allowInCluster") {
		opens = append(opens, func(a *attempt) { a.rules.AllowInCluster = true })
	}
	if len(opens) > 0 {
		each(opens...)
	}
	if m := hostsInText.FindStringSubmatch(rule); m != nil {
		each(func(a *attempt) { a.rules.Hosts = append(a.rules.Hosts, m[1]) }, func(a *attempt) { a.rules.Hosts = nil })
	}
	return ways
}

// Each kind of refusal says by which rule, and what would pass. What passes, passes at once.
func TestWhatARefusalSaysPasses(t *testing.T) {
	t.Parallel()
	narrowed := func(hosts ...string) func(*Rules) { return func(r *Rules) { r.Hosts = hosts } }
	for _, tc := range []struct {
		sentence string
		rules    *Rules
		to       string
		protocol Protocol
		names    string
		rule     string
	}{
		{"an address", listed(packages), "198.51.100.7:443", TCP, "",
			"198.51.100.7:443 isn't in the policy's network.allowed: add {host: 198.51.100.7, ports: [443]}"},
		{"an address, of a call with hosts", listed(packages).with(narrowed(packages.Host)), "198.51.100.7:443", TCP, "",
			"198.51.100.7:443 isn't in the policy's network.allowed: add {host: 198.51.100.7, ports: [443]}, and add 198.51.100.7 to the call's network.hosts, or leave hosts out"},
		{"a name", listed(packages), "198.51.100.7:443", TCP, "other.example.com",
			"other.example.com:443 (198.51.100.7) isn't in the policy's network.allowed: add {host: other.example.com, ports: [443]}"},
		{"a name of the cluster that leads out of it", listed(packages), "198.51.100.7:443", TCP, service.Host,
			"a.ns.svc.cluster.local:443 (198.51.100.7) isn't in the policy's network.allowed: add {host: 198.51.100.7, ports: [443]}"},
		{"a port", listed(packages), "198.51.100.7:22", TCP, packages.Host,
			"packages.example.com:22 (198.51.100.7) isn't in the policy's network.allowed, which has packages.example.com with ports [443]: add 22 to its ports"},
		{"a port below a wildcard", listed(Entry{Host: "*.example.com", Ports: []int{80, 443}}), "198.51.100.7:22", TCP, packages.Host,
			"packages.example.com:22 (198.51.100.7) isn't in the policy's network.allowed, which has *.example.com with ports [80 443]: add 22 to its ports"},
		{"a host that the call left out", listed(packages, Entry{Host: "198.51.100.0/24"}).with(narrowed(packages.Host)), "198.51.100.7:443", TCP, "",
			"198.51.100.7:443 isn't in the call's network.hosts: add 198.51.100.7 to it, or leave hosts out"},
		{"a name of an address that the call left out", listed(packages, Entry{Host: "198.51.100.0/24"}).with(narrowed(packages.Host)), "198.51.100.7:443", TCP, "other.example.com",
			"other.example.com:443 (198.51.100.7) isn't in the call's network.hosts: add 198.51.100.7 to it, or leave hosts out"},
		{"a service, by its address", open(), "10.96.0.10:443", TCP, "",
			"10.96.0.10 is in the cluster's network 10.96.0.0/12: add {host: 10.96.0.10, ports: [443]} to the policy's network.allowed, or set allowInCluster"},
		{"a service, by its address, in mode Listed", listed(), "10.96.0.10:443", TCP, "",
			"10.96.0.10 is in the cluster's network 10.96.0.0/12: add {host: 10.96.0.10, ports: [443]} to the policy's network.allowed"},
		{"a service, by its name", listed(), "10.96.0.10:443", TCP, service.Host,
			"10.96.0.10 (a.ns.svc.cluster.local) is in the cluster's network 10.96.0.0/12: add {host: a.ns.svc.cluster.local, ports: [443]} to the policy's network.allowed"},
		{"a service, of a call with hosts", open().with(narrowed(packages.Host)), "10.96.0.10:443", TCP, "",
			"10.96.0.10 is in the cluster's network 10.96.0.0/12: add {host: 10.96.0.10, ports: [443]} to the policy's network.allowed, and add 10.96.0.10 to the call's network.hosts, or leave hosts out"},
		{"a service, by a name from outside", listed(Entry{Host: "*.example.com"}), "10.96.0.10:443", TCP, packages.Host,
			"10.96.0.10 (packages.example.com) is in the cluster's network 10.96.0.0/12: add {host: packages.example.com, ports: [443]} to the policy's network.allowed, or set allowInCluster"},
		{"a pod", open(), "10.244.3.4:8080", TCP, "",
			"10.244.3.4 is in the cluster's network 10.244.0.0/16: add {host: 10.244.3.4, ports: [8080]} to the policy's network.allowed, or set allowInCluster"},
		{"the policy's own denial", open().with(func(r *Rules) { r.DeniedCIDRs = []string{"198.51.100.0/24"} }), "198.51.100.7:443", TCP, "",
			"198.51.100.7 is in 198.51.100.0/24 of the policy's network.deniedCIDRs, which win over everything: take it out of them, or use another address"},
		{"the metadata address", open(), "169.254.169.254:80", TCP, "",
			"169.254.169.254 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
		{"a link-local address", open(), "[fe80::1]:80", TCP, "",
			"fe80::1 is a link-local address, which no policy allows: use another address of the host"},
		{"the node", open(), "192.168.5.10:10250", TCP, "",
			"192.168.5.10 is an address of the node, which no policy allows: put a Service before what listens there, and allow that one"},
		{"the API server", open(), "203.0.113.6:6443", TCP, "",
			"203.0.113.6 is an address of the cluster's API server, which no policy allows: have a server of your own make the requests, and allow that one"},
		{"a resolver", open(), "127.0.0.53:1053", TCP, "",
			"127.0.0.53 is the address of the calls' resolvers, which no policy allows: ask the nameserver of /etc/resolv.conf"},
		{"UDP to what is allowed", listed(Entry{Host: "198.51.100.7"}), "198.51.100.7:443", UDP, "",
			"UDP to 198.51.100.7:443 is refused: use TCP, or set the policy's network.udp"},
		{"UDP to what isn't", listed(), "198.51.100.7:443", UDP, "",
			"UDP to 198.51.100.7:443 is refused: use TCP, or set the policy's network.udp; besides, 198.51.100.7:443 isn't in the policy's network.allowed: add {host: 198.51.100.7, ports: [443]}"},
		{"UDP to the metadata address", open(), "169.254.169.254:80", UDP, "",
			"169.254.169.254 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			t.Parallel()
			a := attempt{*tc.rules, Connection{To: netip.MustParseAddrPort(tc.to), Protocol: tc.protocol, Names: lookedUp(tc.names)}}
			got := a.decide(t)
			if got.Allowed || got.Rule != tc.rule {
				t.Fatalf("got  %s\nwant %s", got.Rule, tc.rule)
			}
			if strings.Contains(got.Rule, nothingPasses) {
				return
			}
			for i, way := range follow(t, a, got.Rule) {
				if v := way.decide(t); !v.Allowed {
					t.Errorf("%s\nway %d: %+v\nand then: %s", got.Rule, i, way, v.Rule)
				}
			}
		})
	}
}

func TestWhatARefusedLookupSaysPasses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		sentence string
		rules    *Rules
		rule     string
	}{
		{"a name", listed(packages),
			"other.example.com isn't in the policy's network.allowed: add {host: other.example.com}"},
		{"a name, of a call with hosts", listed(packages).with(func(r *Rules) { r.Hosts = []string{packages.Host} }),
			"other.example.com isn't in the policy's network.allowed: add {host: other.example.com}, and add other.example.com to the call's network.hosts, or leave hosts out"},
		{"a name that the call left out", open().with(func(r *Rules) { r.Hosts = []string{packages.Host} }),
			"other.example.com isn't in the call's network.hosts: add other.example.com to it, or leave hosts out"},
		{"mode None", &Rules{Mode: None, Surroundings: surroundings},
			"other.example.com is refused, as the policy's network.mode is None: set mode Listed, and add {host: other.example.com} to network.allowed"},
	} {
		const name = "other.example.com"
		got := compiled(t, tc.rules).Lookup(name)
		if got.Allowed || got.Rule != tc.rule {
			t.Errorf("%s: got  %s\nwant %s", tc.sentence, got.Rule, tc.rule)
		}
		for i, way := range follow(t, attempt{rules: *tc.rules}, got.Rule) {
			if v := compiled(t, &way.rules).Lookup(name); !v.Allowed {
				t.Errorf("%s: way %d: %s", tc.sentence, i, v.Rule)
			}
		}
	}
}

// Where several rules refuse something, who does what each refusal says gets there.
func TestWhoeverFollowsRefusalsGetsThere(t *testing.T) {
	t.Parallel()
	const mostSteps = 6
	followed := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		a := attempt{*randomRules(r), Connection{
			To:    netip.AddrPortFrom(netip.MustParseAddr(fuzzAddrs[r.IntN(len(fuzzAddrs))]), uint16(fuzzPorts[r.IntN(len(fuzzPorts))])),
			Names: pickNames(r, 2), Protocol: Protocol(r.IntN(2)),
		}}
		var said []string
		for {
			got := a.decide(t)
			if got.Allowed || strings.Contains(got.Rule, nothingPasses) {
				break
			}
			followed++
			if said = append(said, got.Rule); len(said) > mostSteps {
				t.Fatalf("seed %d: %+v\n%s", seed, a, strings.Join(said, "\n"))
			}
			ways := follow(t, a, got.Rule)
			a = ways[r.IntN(len(ways))]
		}
	}
	if followed < 1000 {
		t.Errorf("only %d refusals were followed", followed)
	}
}
