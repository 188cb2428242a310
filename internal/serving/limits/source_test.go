package limits

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func mustParseProxies(t testing.TB, texts ...string) []netip.Prefix {
	t.Helper()
	proxies, err := ParseProxies(texts)
	if err != nil {
		t.Fatal(err)
	}
	return proxies
}

func TestSourceOfARequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		peer      string
		forwarded []string
		proxies   []string
		want      string
	}{
		"the peer":                             {"192.0.2.1:4000", nil, nil, "192.0.2.1"},
		"another port of it":                   {"192.0.2.1:5000", nil, nil, "192.0.2.1"},
		"over IPv6":                            {"[2001:db8:1:2:3:4:5:6]:4000", nil, nil, "2001:db8:1:2::/64"},
		"a neighbour over IPv6":                {"[2001:db8:1:2::9]:4000", nil, nil, "2001:db8:1:2::/64"},
		"IPv4 over IPv6":                       {"[::ffff:192.0.2.1]:4000", nil, nil, "192.0.2.1"},
		"a link-local address":                 {"[fe80::1%eth0]:4000", nil, nil, "fe80::/64"},
		"a header that nobody trusts":          {"192.0.2.1:4000", []string{"198.51.100.7"}, nil, "192.0.2.1"},
		"a header of a peer that isn't listed": {"192.0.2.1:4000", []string{"198.51.100.7"}, []string{"10.0.0.0/8"}, "192.0.2.1"},
		"a trusted proxy":                      {"10.1.2.3:4000", []string{"198.51.100.7"}, []string{"10.0.0.0/8"}, "198.51.100.7"},
		"a proxy by its address":               {"10.1.2.3:4000", []string{"198.51.100.7"}, []string{"10.1.2.3"}, "198.51.100.7"},
		"a proxy by its address over IPv6":     {"[::ffff:10.1.2.3]:4000", []string{"198.51.100.7"}, []string{"::ffff:10.1.2.3"}, "198.51.100.7"},
		"a client that invents proxies":        {"10.1.2.3:4000", []string{"203.0.113.1, 203.0.113.2, 198.51.100.7"}, []string{"10.0.0.0/8"}, "198.51.100.7"},
		"a client that invents a header":       {"10.1.2.3:4000", []string{"203.0.113.1", "198.51.100.7"}, []string{"10.0.0.0/8"}, "198.51.100.7"},
		"two trusted proxies":                  {"10.1.2.3:4000", []string{"198.51.100.7, 10.9.9.9"}, []string{"10.0.0.0/8"}, "198.51.100.7"},
		"nothing but trusted proxies":          {"10.1.2.3:4000", []string{"10.8.8.8, 10.9.9.9"}, []string{"10.0.0.0/8"}, "10.8.8.8"},
		"a proxy without a header":             {"10.1.2.3:4000", nil, []string{"10.0.0.0/8"}, "10.1.2.3"},
		"an element that is no address":        {"10.1.2.3:4000", []string{"198.51.100.7, unknown"}, []string{"10.0.0.0/8"}, "10.1.2.3"},
		"an empty element":                     {"10.1.2.3:4000", []string{"198.51.100.7,"}, []string{"10.0.0.0/8"}, "10.1.2.3"},
		"a port":                               {"10.1.2.3:4000", []string{"198.51.100.7:1234"}, []string{"10.0.0.0/8"}, "198.51.100.7"},
		"IPv6 with a port":                     {"10.1.2.3:4000", []string{"[2001:db8::1]:1234"}, []string{"10.0.0.0/8"}, "2001:db8::/64"},
		"IPv6 in brackets":                     {"10.1.2.3:4000", []string{"[2001:db8::1]"}, []string{"10.0.0.0/8"}, "2001:db8::/64"},
		"a proxy over IPv6":                    {"[fd00::5]:4000", []string{"2001:db8::1"}, []string{"fd00::/8"}, "2001:db8::/64"},
		"a peer without an address":            {"@", nil, nil, "@"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Sources{Proxies: mustParseProxies(t, c.proxies...)}
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
			for _, value := range c.forwarded {
				r.Header.Add("X-Forwarded-For", value)
			}
			if got := s.OfRequest(r); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestProxiesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "proxy.example.com", "10.0.0.0/33", "10.0.0.0-10.0.0.9", "*"} {
		if _, err := ParseProxies([]string{"10.0.0.1", text}); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// An endless header costs bounded work.
func TestALongHeaderIsReadFromTheEnd(t *testing.T) {
	t.Parallel()
	s := &Sources{Proxies: mustParseProxies(t, "10.0.0.0/8")}
	r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Forwarded-For": {"192.0.2.1, " + strings.Repeat("10.0.0.2, ", 1000) + "10.0.0.3"}}}
	if got := s.OfRequest(r); got != "10.0.0.2" {
		t.Errorf("got %s", got)
	}
}

// Whatever a client sends, a source is the peer or an address from the header, and never in doubt without a proxy.
func FuzzSource(f *testing.F) {
	f.Add("192.0.2.1:1", "198.51.100.7, 10.0.0.1")
	f.Add("10.0.0.1:1", "[::1%a]:5,,")
	f.Fuzz(func(t *testing.T, peer, forwarded string) {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {forwarded}}}
		plain := (&Sources{}).OfRequest(r)
		if again := (&Sources{}).OfRequest(&http.Request{RemoteAddr: peer, Header: http.Header{}}); plain != again {
			t.Errorf("without a trusted proxy, the header makes %q of %q", plain, again)
		}
		got := (&Sources{Proxies: mustParseProxies(t, "10.0.0.0/8", "fd00::/8")}).OfRequest(r)
		if got == plain {
			return
		}
		address, err := netip.ParseAddr(strings.TrimSuffix(got, "/64"))
		if err != nil || !strings.HasPrefix(plain, "10.") && !strings.HasPrefix(plain, "fd") || address.Zone() != "" {
			t.Errorf("%q with %q is %q", peer, forwarded, got)
		}
	})
}
