package network

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Every way to write an address that is denied, or that leads to it, is denied in the widest rules that there are.
func TestDeniedAddressesInDisguise(t *testing.T) {
	t.Parallel()
	widest := open(Entry{Host: "0.0.0.0/0", Ports: []int{80}}, Entry{Host: "::/0", Ports: []int{80}}, Entry{Host: "a.test", Ports: []int{80}}, Entry{Host: "*.test", Ports: []int{80}})
	widest.AllowInCluster = true
	widest.DeniedCIDRs = []string{"10.9.0.0/16"}
	d := compiled(t, widest)
	for sentence, addr := range map[string]string{
		"the metadata address":            "169.254.169.254",
		"mapped":                          "::ffff:169.254.169.254",
		"mapped, in hexadecimal":          "::ffff:a9fe:a9fe",
		"IPv4-compatible":                 "::169.254.169.254",
		"IPv4-translated":                 "::ffff:0:169.254.169.254",
		"NAT64":                           "64:ff9b::169.254.169.254",
		"NAT64 for local use, /96":        "64:ff9b:1::169.254.169.254",
		"NAT64 for local use, /48":        "64:ff9b:1:a9fe:a9:fe00::",
		"NAT64 for local use, /56":        "64:ff9b:1:a9:fe:a9fe::",
		"NAT64 for local use, /64":        "64:ff9b:1:0:a9:fea9:fe00:0",
		"6to4":                            "2002:a9fe:a9fe::1",
		"Teredo's server":                 "2001:0:a9fe:a9fe::1",
		"Teredo's client":                 "2001:0:c000:201:0:0:5601:5601",
		"ISATAP":                          "2001:db8::5efe:169.254.169.254",
		"ISATAP with the universal bit":   "2001:db8::200:5efe:169.254.169.254",
		"link-local with a zone":          "fe80::1%eth0",
		"link-local at the end":           "febf:ffff::1",
		"the IPv6 metadata address":       "fd00:ec2::254",
		"Amazon's last address":           "fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff",
		"Google's, by IPv6":               "fd20:ce::254",
		"Alibaba's by NAT64":              "64:ff9b::100.100.100.200",
		"Azure's by 6to4":                 "2002:a83f:8110::1",
		"Oracle's, mapped":                "::ffff:192.0.0.192",
		"the node":                        "192.168.5.10",
		"the node, mapped":                "::ffff:192.168.5.10",
		"the node by NAT64":               "64:ff9b::192.168.5.10",
		"the API server":                  "10.96.0.1",
		"the API server by 6to4":          "2002:0a60:0001::",
		"the API server mapped, zoned":    "::ffff:10.96.0.1%eth0",
		"a denied network by NAT64":       "64:ff9b::10.9.1.1",
		"a denied network, mapped":        "::ffff:10.9.255.255",
		"a link-local address of the end": "169.254.255.255",
	} {
		for _, names := range []string{"", "a.test", "b.test", "a.test b.test"} {
			c := Connection{To: netip.AddrPortFrom(netip.MustParseAddr(addr), 80), Names: lookedUp(names)}
			if got := d.Decide(c); got.Allowed || got.Rule == "" {
				t.Errorf("%s, %s with the names %q: %+v", sentence, addr, names, got)
			}
			if d.Reachable(c.To.Addr(), c.Names...).Allowed {
				t.Errorf("%s, %s with the names %q is reachable", sentence, addr, names)
			}
		}
	}
}

func TestTheClusterInDisguise(t *testing.T) {
	t.Parallel()
	d := compiled(t, open(Entry{Host: "64:ff9b::/96"}, Entry{Host: "*.test"}, Entry{Host: "::/0"}, Entry{Host: "exact.test"}, Entry{Host: "10.96.0.11"}, service))
	for sentence, tc := range map[string]struct {
		addr, name string
		allowed    bool
	}{
		"a mapped service":                               {"::ffff:10.96.0.10", "", false},
		"a network of IPv6 doesn't open IPv4":            {"10.96.0.10", "", false},
		"a listed NAT64 prefix doesn't open the service": {"64:ff9b::10.96.0.10", "", false},
		"a service by 6to4":                              {"2002:a60:a::", "", false},
		"a wildcard's name that is rebound":              {"10.96.0.10", "a.test", false},
		"a wildcard's name that is rebound by NAT64":     {"64:ff9b::10.96.0.10", "a.test", false},
		"a public name by NAT64":                         {"64:ff9b::10.96.0.10", "exact.test", false},
		"a public name that is written out":              {"10.96.0.10", "exact.test", true},
		"a name of the cluster by NAT64":                 {"64:ff9b::10.96.0.10", "a.ns.svc.cluster.local", false},
		"a name of the cluster":                          {"10.96.0.10", "a.ns.svc.cluster.local", true},
		"a listed service by NAT64":                      {"64:ff9b::10.96.0.11", "", false},
		"a listed network of the cluster":                {"fd10::5", "", true},
		"an address that embeds one outside":             {"64:ff9b::198.51.100.7", "", true},
	} {
		c := Connection{To: netip.AddrPortFrom(netip.MustParseAddr(tc.addr), 443), Names: lookedUp(tc.name)}
		if got := d.Decide(c); got.Allowed != tc.allowed {
			t.Errorf("%s: %+v", sentence, got)
		}
	}
}

// Addresses that look like an embedding, or hold only zeros where an address would be, aren't denied by accident.
func TestOrdinaryIPv6AddressesEmbedNothingDenied(t *testing.T) {
	t.Parallel()
	d := compiled(t, open().with(func(r *Rules) { r.DeniedCIDRs = []string{"0.0.0.0/8"} }))
	for _, addr := range []string{"2001:db8::1", "2606:4700::1111", "2a00:1450:4001:80b::200e", "64:ff9b::198.51.100.7", "64:ff9b:1::198.51.100.7", "2001:4860:4860::8888", "fd00::1"} {
		if got := d.Decide(Connection{To: netip.AddrPortFrom(netip.MustParseAddr(addr), 443)}); !got.Allowed {
			t.Errorf("%s: %+v", addr, got)
		}
	}
}

// Decisions about 0.0.0.0 and :: rest on what the kernel does with them, also for a socket that is bound to a foreign
// address, which anybody may do by IP_FREEBIND.
func TestTheKernelConnectsUnspecifiedAddressesToThePodItself(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port}
	plain := socket(t)
	if err := unix.Connect(plain, to); err != nil {
		t.Fatal(err)
	}
	peer, err := unix.Getpeername(plain)
	if in4, ok := peer.(*unix.SockaddrInet4); err != nil || !ok || in4.Addr != [4]byte{127, 0, 0, 1} {
		t.Errorf("0.0.0.0 is %+v, %v", peer, err)
	}
	foreign := socket(t)
	if err := unix.SetsockoptInt(foreign, unix.SOL_IP, unix.IP_FREEBIND, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(foreign, &unix.SockaddrInet4{Addr: [4]byte{169, 254, 169, 254}}); err != nil {
		t.Skipf("a foreign address can't be bound: %v", err)
	}
	if err := unix.Connect(foreign, to); err == nil {
		t.Error("a socket that is bound to a foreign address reaches something by 0.0.0.0")
	}
}

func socket(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestMessagesHoldNoControlCharacters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a\x1b[2J", "a\u202eb", "\x00", "a\nb", "*.\x07"} {
		for _, r := range []*Rules{listed(Entry{Host: text}), open().with(func(r *Rules) { r.DeniedCIDRs = []string{text + "/8"} }), {Mode: Mode(text)}} {
			err := Validate(r)
			if err == nil {
				t.Fatalf("%q passes", text)
			}
			for _, c := range err.Error() {
				if c < ' ' || c == 0x7f || c == 0x202e {
					t.Errorf("%q: %q", text, err)
				}
			}
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	r := listed()
	for range 255 {
		r.Allowed = append(r.Allowed, Entry{Host: netip.AddrFrom4([4]byte{198, 51, 100, byte(len(r.Allowed))}).String()})
	}
	r.Allowed = append(r.Allowed, Entry{Host: "a.test"})
	d := compiled(b, r)
	c := Connection{To: netip.MustParseAddrPort("203.0.113.7:443"), Names: lookedUp("a.test")}
	b.ReportAllocs()
	for b.Loop() {
		if !d.Decide(c).Allowed {
			b.Fatal("it is refused")
		}
	}
}
