package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHostsThatAreWrong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	for host, want := range map[string]string{
		"":                               `it is empty: name a host, such as packages.example.com`,
		"*":                              `"*" would name every host: list the hosts, or set mode Open`,
		"*.":                             `"" isn't a name: write one such as packages.example.com`,
		"a.*.example.com":                `"a.*.example.com" isn't a name: "*" stands for whole labels at the start alone, as in *.example.com`,
		"*.*.example.com":                `"*.example.com" isn't a name: "*" stands for whole labels at the start alone, as in *.example.com`,
		"a*.example.com":                 `"a*.example.com" isn't a name: "*" stands for whole labels at the start alone, as in *.example.com`,
		"https://example.com/":           `"https://example.com/" is a URL: write its host alone, such as packages.example.com`,
		"example.com:443":                `"example.com:443" has a port: write "example.com", and "443" into ports`,
		"10.0.0.7:443":                   `"10.0.0.7:443" has a port: write "10.0.0.7", and "443" into ports`,
		"[2001:db8::1]:443":              `"[2001:db8::1]:443" has brackets: write "2001:db8::1", and the port into ports`,
		"bücher.example":                 `"bücher.example" isn't ASCII: write the form that starts with xn--`,
		"a..b":                           `"a..b" isn't a name: between two dots, and at its start, there must be a label`,
		".a":                             `".a" isn't a name: between two dots, and at its start, there must be a label`,
		"a..":                            `"a.." isn't a name: between two dots, and at its start, there must be a label`,
		long + ".test":                   `"` + long + `.test" isn't a name: a label has 64 bytes, and may have 63`,
		"-a.test":                        `"-a.test" isn't a name: a label starts or ends with a hyphen`,
		"a-.test":                        `"a-.test" isn't a name: a label starts or ends with a hyphen`,
		"a b.test":                       `"a b.test" isn't a name: it contains ' ', and may contain letters, digits, hyphens, underscores and dots`,
		"a\x1b[2J.test":                  `"a\x1b[2J.test" isn't a name: it contains '\x1b', and may contain letters, digits, hyphens, underscores and dots`,
		"10.0.0.256":                     `"10.0.0.256" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"010.0.0.1":                      `"010.0.0.1" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"10.1":                           `"10.1" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"0x7f.1":                         `"0x7f.1" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"2130706433":                     `"2130706433" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"a.0x7F":                         `"a.0x7F" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"*.1":                            `"*.1" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"2001:db8::g":                    `"2001:db8::g" isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7`,
		"2001:db8::1%eth0":               `"2001:db8::1%eth0" has a zone: write 2001:db8::1`,
		"::ffff:10.0.0.7":                `"::ffff:10.0.0.7" is an IPv4 address in IPv6 notation: write 10.0.0.7`,
		"0.0.0.0":                        `"0.0.0.0" is no host: write 0.0.0.0/0 for every address`,
		"::":                             `"::" is no host: write ::/0 for every address`,
		"10.0.0.7/8":                     `"10.0.0.7/8" has bits set after its first 8: write 10.0.0.0/8 for the network, or 10.0.0.7 for the one address`,
		"2001:db8::1/32":                 `"2001:db8::1/32" has bits set after its first 32: write 2001:db8::/32 for the network, or 2001:db8::1 for the one address`,
		"10.0.0.0/33":                    `"10.0.0.0/33" isn't a CIDR: write one such as 192.0.2.0/24 or 2001:db8::/32`,
		"10.0.0.0/":                      `"10.0.0.0/" isn't a CIDR: write one such as 192.0.2.0/24 or 2001:db8::/32`,
		"example.com/24":                 `"example.com/24" isn't a CIDR: write one such as 192.0.2.0/24 or 2001:db8::/32`,
		"::ffff:10.0.0.0/104":            `"::ffff:10.0.0.0/104" is an IPv4 CIDR in IPv6 notation: write 10.0.0.0/8`,
		"::ffff:0:0/95":                  `"::ffff:0:0/95" mixes IPv4 and IPv6: write 0.0.0.0/0 for IPv4 and an IPv6 CIDR of its own`,
		strings.Repeat("a.", 127):        `"` + strings.Repeat("a.", 40) + `"… has 253`,
		strings.Repeat("a.", 200):        `"` + strings.Repeat("a.", 40) + `"… has 399 bytes, and a name has at most 253`,
		strings.Repeat("a.", 126) + "bc": `"` + strings.Repeat("a.", 40) + `"… has 254 bytes, and a name has at most 253`,
	} {
		_, err := Compile(listed(Entry{Host: host}))
		if host == strings.Repeat("a.", 127) {
			if err != nil {
				t.Errorf("a name of 253 bytes and a dot: %v", err)
			}
			continue
		}
		if diff := cmp.Diff([]string{"allowed[0].host: " + want}, problemsOf(t, err)); diff != "" {
			t.Errorf("%q:\n%s", host, diff)
		}
	}
}

func TestHostsHaveOneCanonicalForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Packages.Example.COM": "packages.example.com", "packages.example.com.": "packages.example.com", "*.Example.com.": "*.example.com",
		"redis": "redis", "_x.a-b.test": "_x.a-b.test", "xn--bcher-kva.example": "xn--bcher-kva.example", "1.a": "1.a", "3com.com": "3com.com",
		"a.0x": "", "192.0.2.7": "192.0.2.7", "192.0.2.7/32": "192.0.2.7", "10.0.0.0/8": "10.0.0.0/8", "0.0.0.0/0": "0.0.0.0/0", "::/0": "::/0",
		"2001:DB8:0:0::7": "2001:db8::7", "2001:db8::/32": "2001:db8::/32", "a.0xg": "a.0xg",
	} {
		got, err := parseHost(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if again, err := parseHost(got.String()); want != "" && (err != nil || again != got) {
			t.Errorf("%q isn't stable: %q, %v", text, again, err)
		}
	}
}

func TestFieldsThatAreWrong(t *testing.T) {
	t.Parallel()
	many := func(n int, text string) (list []string) {
		for range n {
			list = append(list, text)
		}
		return list
	}
	for sentence, tc := range map[string]struct {
		change func(*Rules)
		want   []string
	}{
		"no mode":                    {func(r *Rules) { r.Mode = "" }, []string{`mode: "" isn't a mode: use None, Listed or Open`}},
		"another mode":               {func(r *Rules) { r.Mode = "open" }, []string{`mode: "open" isn't a mode: use None, Listed or Open`}},
		"no such port":               {func(r *Rules) { r.Allowed = []Entry{{"a.test", []int{443, 0, 65536, -1}}} }, []string{"allowed[0].ports[1]: 0 isn't a port: use 1 to 65535", "allowed[0].ports[2]: 65536 isn't a port: use 1 to 65535", "allowed[0].ports[3]: -1 isn't a port: use 1 to 65535"}},
		"too many hosts":             {func(r *Rules) { r.Hosts = many(257, "a.test") }, []string{"hosts: it has 257 entries, and may have 256"}},
		"a denied address":           {func(r *Rules) { r.DeniedCIDRs = []string{"10.0.0.7", "::ffff:10.0.0.7", "2001:db8::1"} }, []string{`deniedCIDRs[0]: "10.0.0.7" is an address: write 10.0.0.7/32`, `deniedCIDRs[1]: "::ffff:10.0.0.7" is an address: write 10.0.0.7/32`, `deniedCIDRs[2]: "2001:db8::1" is an address: write 2001:db8::1/128`}},
		"a denied network's bits":    {func(r *Rules) { r.DeniedCIDRs = []string{"10.0.0.7/8"} }, []string{`deniedCIDRs[0]: "10.0.0.7/8" has bits set after its first 8: write 10.0.0.0/8 for the network, or 10.0.0.7 for the one address`}},
		"a denied name":              {func(r *Rules) { r.DeniedCIDRs = []string{"a.test"} }, []string{`deniedCIDRs[0]: "a.test" isn't a CIDR: write one such as 192.0.2.0/24 or 2001:db8::/32`}},
		"a wrong host":               {func(r *Rules) { r.Hosts = []string{"a.test", "*"} }, []string{`hosts[1]: "*" would name every host: list the hosts, or set mode Open`}},
		"a node on loopback":         {func(r *Rules) { r.Surroundings.Node = []netip.Addr{netip.MustParseAddr("127.0.0.1")} }, []string{"surroundings.node[0]: 127.0.0.1 isn't an address that a pod reaches it by"}},
		"an API server without one":  {func(r *Rules) { r.Surroundings.APIServer = []netip.Addr{{}} }, []string{"surroundings.apiServer[0]: invalid IP isn't an address that a pod reaches it by"}},
		"a pod on loopback":          {func(r *Rules) { r.Surroundings.Pod = []netip.Addr{netip.MustParseAddr("::1")} }, []string{"surroundings.pod[0]: ::1 isn't an address that a pod reaches it by"}},
		"a cluster's network's bits": {func(r *Rules) { r.Surroundings.Services = []netip.Prefix{netip.MustParsePrefix("10.96.0.1/12")} }, []string{"surroundings.services[0]: 10.96.0.1/12 isn't a network: write one such as 10.96.0.0/12"}},
		"a wrong domain":             {func(r *Rules) { r.Surroundings.Domain = "cluster local" }, []string{`surroundings.domain: "cluster local" isn't a name: it contains ' ', and may contain letters, digits, hyphens, underscores and dots`}},
		"many errors": {func(r *Rules) { r.Hosts = many(12, "*") }, func() (list []string) {
			for i := range 8 {
				list = append(list, fmt.Sprintf(`hosts[%d]: "*" would name every host: list the hosts, or set mode Open`, i))
			}
			return append(list, "and 4 more errors")
		}()},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := open()
			tc.change(r)
			_, err := Compile(r)
			if diff := cmp.Diff(tc.want, problemsOf(t, err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSurroundingsMustBeKnown(t *testing.T) {
	t.Parallel()
	all := []string{
		"surroundings.node: the node's addresses aren't known, so nothing would deny them: give them",
		"surroundings.apiServerService: the addresses of the API server's Service aren't known, so nothing would deny them: give them",
		"surroundings.apiServer: the addresses of the API server's endpoints aren't known, so nothing would deny them: give them",
	}
	for sentence, tc := range map[string]struct {
		rules *Rules
		want  []string
	}{
		"in mode Open":                    {&Rules{Mode: Open}, all},
		"in mode Listed":                  {&Rules{Mode: Listed, Allowed: []Entry{packages}}, all},
		"for an open cluster too":         {&Rules{Mode: Open, AllowInCluster: true}, all},
		"not in mode None":                {&Rules{Mode: None}, nil},
		"the node's":                      {open().with(func(r *Rules) { r.Surroundings.Node = nil }), all[:1]},
		"the Service of the API server":   {open().with(func(r *Rules) { r.Surroundings.APIServerService = nil }), all[1:2]},
		"the endpoints of the API server": {open().with(func(r *Rules) { r.Surroundings.APIServer = nil }), all[2:3]},
		"but for networks that nobody knows": {open().with(podsUnknown).with(func(r *Rules) {
			r.Surroundings.Services = nil
		}), nil},
		"the pod's own may be missing": {open().with(func(r *Rules) { r.Surroundings.Pod = nil }), nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			d, err := Compile(tc.rules)
			if diff := cmp.Diff(tc.want, problemsOf(t, err)); diff != "" || (d == nil) != (tc.want != nil) {
				t.Error(diff)
			}
			if err := Validate(tc.rules); err != nil {
				t.Errorf("a policy can't know them: %v", err)
			}
			if _, err := Narrow(tc.rules, nil); err != nil {
				t.Errorf("a decision can't know them: %v", err)
			}
		})
	}
	if err := Validate(&Rules{Mode: Open, Hosts: []string{"*"}}); err == nil {
		t.Error("a wrong field is valid")
	}
}

func TestNarrowing(t *testing.T) {
	t.Parallel()
	policy := listed(Entry{Host: "packages.example.com"}, Entry{Host: "*.example.org", Ports: []int{80}}, Entry{Host: "10.0.0.0/8"}, Entry{Host: "2001:db8::/32"})
	inCluster := open().with(func(r *Rules) { r.AllowInCluster = true })
	for sentence, tc := range map[string]struct {
		rules *Rules
		hosts string
		kept  string
		want  string
	}{
		"no hosts":                         {policy, "", "", ""},
		"the same name":                    {policy, "Packages.example.com.", "packages.example.com", ""},
		"names below a wildcard":           {policy, "b.example.org a.b.example.org *.c.example.org *.example.org", "*.c.example.org *.example.org a.b.example.org b.example.org", ""},
		"addresses in networks":            {policy, "10.1.2.3 10.4.0.0/16 10.0.0.0/8 2001:db8:1::/48", "10.0.0.0/8 10.1.2.3 10.4.0.0/16 2001:db8:1::/48", ""},
		"one twice":                        {policy, "10.1.2.3 10.1.2.3/32", "10.1.2.3", ""},
		"a name that isn't listed":         {policy, "other.example.com", "", `hosts[0]: other.example.com isn't covered by the policy's network.allowed: add {host: other.example.com} there, or leave it out`},
		"a wildcard's parent":              {policy, "example.org", "", `hosts[0]: example.org isn't covered by the policy's network.allowed: add {host: example.org} there, or leave it out`},
		"a wildcard over a name":           {policy, "*.packages.example.com", "", `hosts[0]: *.packages.example.com isn't covered by the policy's network.allowed: add {host: *.packages.example.com} there, or leave it out`},
		"a wider wildcard":                 {policy, "*.org", "", `hosts[0]: *.org isn't covered by the policy's network.allowed: add {host: *.org} there, or leave it out`},
		"a wider network":                  {policy, "10.0.0.0/7", "", `hosts[0]: 10.0.0.0/7 isn't covered by the policy's network.allowed: add {host: 10.0.0.0/7} there, or leave it out`},
		"everything":                       {policy, "0.0.0.0/0", "", `hosts[0]: 0.0.0.0/0 isn't covered by the policy's network.allowed: add {host: 0.0.0.0/0} there, or leave it out`},
		"the metadata address":             {open(), "169.254.169.254", "", "hosts[0]: 169.254.169.254 is a metadata address, which no policy allows: give the call its credentials by the environment's secrets"},
		"the node":                         {open(), "192.168.5.10", "", "hosts[0]: 192.168.5.10 is an address of the node, which no policy allows: put a Service before what listens there, and allow that one"},
		"a denied network":                 {open().with(func(r *Rules) { r.DeniedCIDRs = []string{"198.51.100.0/24"} }), "198.51.100.128/25", "", "hosts[0]: 198.51.100.128 is in 198.51.100.0/24 of the policy's network.deniedCIDRs, which win over everything: take it out of them, or use another address"},
		"a network that is denied in part": {open().with(func(r *Rules) { r.DeniedCIDRs = []string{"198.51.100.0/24"} }), "198.51.0.0/16", "198.51.0.0/16", ""},
		"the cluster in mode Open":         {open(), "10.96.0.10", "", "hosts[0]: 10.96.0.10 is in the cluster's network 10.96.0.0/12: add {host: 10.96.0.10} to the policy's network.allowed, or set allowInCluster"},
		"the cluster where it is listed":   {open(Entry{Host: "10.96.0.0/16"}), "10.96.0.10", "10.96.0.10", ""},
		"the cluster where it is allowed":  {inCluster, "10.96.0.10", "10.96.0.10", ""},
		"anything else in mode Open":       {open(), "198.51.100.7 *.test", "*.test 198.51.100.7", ""},
		"what was narrowed, further":       {open().with(func(r *Rules) { r.Hosts = []string{"*.test"} }), "a.test", "a.test", ""},
		"what was narrowed, wider":         {open().with(func(r *Rules) { r.Hosts = []string{"*.test"} }), "a.example", "", "hosts[0]: a.example isn't covered by the hosts that are left already: leave it out"},
		"mode None":                        {&Rules{Mode: None}, "a.test", "", "hosts[0]: the policy's network.mode is None, so no host can be reached: leave hosts out"},
		"a host that can't be parsed":      {open(), "a.test *", "", `hosts[1]: "*" would name every host: list the hosts, or set mode Open`},
		"rules that are wrong":             {&Rules{Mode: "x"}, "a.test", "", `mode: "x" isn't a mode: use None, Listed or Open`},
		"more hosts than there may be":     {open(), strings.Repeat("a.test ", 257), "", "hosts: it has 257 entries, and may have 256"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got, err := Narrow(tc.rules, strings.Fields(tc.hosts))
			if (err != nil) != (tc.want != "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
			if err != nil {
				return
			}
			if kept := strings.Join(got.Hosts, " "); kept != tc.kept {
				t.Errorf("kept %q, want %q", kept, tc.kept)
			}
			compiled(t, got)
		})
	}
}
