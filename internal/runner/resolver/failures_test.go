package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

func failing(asked dnsmessage.Message, _ string) [][]byte {
	msg := replyTo(asked)
	msg.RCode = dnsmessage.RCodeServerFailure
	return one(msg)
}

func TestFailuresAreTold(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "udp", Err: os.NewSyscallError("connect", unix.ENETUNREACH)}
	}
	served := func(answer func(dnsmessage.Message, string) [][]byte) func(context.Context, string, string) (net.Conn, error) {
		return (&pipes{servers: map[string]func(dnsmessage.Message, string) [][]byte{"192.0.2.1:53": answer}}).dial
	}
	for sentence, tc := range map[string]struct {
		dial func(context.Context, string, string) (net.Conn, error)
		code uint16
		want string
		// told is what Failures tells of it.
		told string
	}{
		"a network that isn't there":  {refused, errorNetwork, "look up packages.example.com: ask the nameserver 192.0.2.1:53: dial udp: connect: network is unreachable", "network is unreachable"},
		"a nameserver that is silent": {served(silent), errorNoneReachable, "look up packages.example.com: ask the nameserver 192.0.2.1:53: there is no answer in time", "there is no answer in time"},
		"a nameserver that fails":     {served(failing), errorNoneReachable, "look up packages.example.com: ask the nameserver 192.0.2.1:53: it answered SERVFAIL", "it answered SERVFAIL"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := configured(t, listing("packages.example.com"), func(c *Config) {
					c.Nameservers, c.Dial = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}, tc.dial
				})
				for range 2 {
					got := ask(t, r, asksFor, dnsmessage.TypeA)
					if code := extendedCode(got); got.RCode != dnsmessage.RCodeServerFailure || code != tc.code || explanation(got) != tc.want {
						t.Errorf("got %v, %d: %s", got.RCode, code, explanation(got))
					}
				}
				last, others := r.Failures()
				if last == nil || others != 0 || fmt.Sprint(last.Name, " ", last.Nameserver, " ", last.Err) != "packages.example.com 192.0.2.1:53 "+tc.told {
					t.Errorf("it tells %+v, and %d others", last, others)
				}
				r.Close()
				synctest.Wait()
			})
		})
	}
}

// A nameserver may be down for a moment, or fail for one family only: programs go on then.
func TestNamesThatWereFoundAllTheSameDoNotFail(t *testing.T) {
	t.Parallel()
	const a, aaaa = dnsmessage.TypeA, dnsmessage.TypeAAAA
	type lookup struct {
		name   string
		kind   dnsmessage.Type
		fails  bool
		absent bool
	}
	for sentence, tc := range map[string]struct {
		lookups []lookup
		last    string
		others  int
	}{
		"nothing is looked up":               {nil, "", 0},
		"a name is found":                    {[]lookup{{name: "a.test", kind: a}}, "", 0},
		"a name has no addresses":            {[]lookup{{name: "a.test", kind: a, absent: true}}, "", 0},
		"a lookup fails":                     {[]lookup{{name: "a.test", kind: a, fails: true}}, "a.test", 0},
		"another try finds it":               {[]lookup{{name: "a.test", kind: a, fails: true}, {name: "a.test", kind: a}}, "", 0},
		"another try fails":                  {[]lookup{{name: "a.test", kind: a}, {name: "a.test", kind: a, fails: true}}, "a.test", 0},
		"IPv6 fails after IPv4":              {[]lookup{{name: "a.test", kind: a}, {name: "a.test", kind: aaaa, fails: true}}, "", 0},
		"IPv6 fails before IPv4":             {[]lookup{{name: "a.test", kind: aaaa, fails: true}, {name: "a.test", kind: a}}, "", 0},
		"IPv6 fails, and there is no IPv4":   {[]lookup{{name: "a.test", kind: aaaa, fails: true}, {name: "a.test", kind: a, absent: true}}, "a.test", 0},
		"both fail":                          {[]lookup{{name: "a.test", kind: a, fails: true}, {name: "a.test", kind: aaaa, fails: true}}, "a.test", 0},
		"another type fails":                 {[]lookup{{name: "a.test", kind: dnsmessage.TypeMX, fails: true}}, "a.test", 0},
		"the last of several is told":        {[]lookup{{name: "a.test", kind: a, fails: true}, {name: "b.test", kind: a, fails: true}, {name: "c.test", kind: a}}, "b.test", 1},
		"the one that fails again is told":   {[]lookup{{name: "a.test", kind: a, fails: true}, {name: "b.test", kind: a, fails: true}, {name: "a.test", kind: a, fails: true}}, "a.test", 1},
		"the one that is left is told alone": {[]lookup{{name: "a.test", kind: a, fails: true}, {name: "b.test", kind: a, fails: true}, {name: "b.test", kind: a}}, "a.test", 0},
	} {
		var f failures
		for _, l := range tc.lookups {
			got, err := &found{addrs: []netip.Addr{netip.MustParseAddr("198.51.100.7")}}, error(nil)
			switch {
			case l.fails:
				got, err = nil, errInTime
			case l.absent:
				got = &found{code: dnsmessage.RCodeNameError}
			}
			f.note(l.name, l.kind, got, err)
		}
		last, others := f.report()
		if name := nameOf(last); name != tc.last || others != tc.others {
			t.Errorf("%s: it tells %q, and %d others", sentence, name, others)
		}
	}
}

func nameOf(f *Failure) string {
	if f == nil {
		return ""
	}
	return f.Name
}

// A call may end before a lookup does.
func TestALookupThatIsStillTriedIsAFailureUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(asked dnsmessage.Message, _ string) [][]byte {
		if len(asked.Additionals) > 0 { // The second round is without EDNS.
			return nil
		}
		<-time.After(time.Second)
		return one(simple(asked))
	}, func(t *testing.T, r *Resolver) {
		replies := make(chan []byte, 1)
		r.Datagram(numbered(1, asksFor), func(msg []byte) { replies <- msg })
		<-time.After(tryTimeout - time.Millisecond)
		if last, _ := r.Failures(); last != nil {
			t.Errorf("while the nameserver may answer, it tells %+v", last)
		}
		<-time.After(2 * time.Millisecond)
		synctest.Wait()
		if last, _ := r.Failures(); nameOf(last) != "packages.example.com" || !errors.Is(last.Err, errInTime) {
			t.Errorf("after the first try it tells %+v", last)
		}
		if got := unpacked(t, <-replies); len(got.Answers) != 1 {
			t.Errorf("got %+v", got)
		}
		if last, _ := r.Failures(); last != nil {
			t.Errorf("after the answer it tells %+v", last)
		}
	})
}

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	var f failures
	for i := range 3 * maxLookedUp {
		f.note(fmt.Sprint(i, ".test"), dnsmessage.TypeA, nil, errInTime)
	}
	if last, others := f.report(); len(f.names) != maxLookedUp || others != maxLookedUp-1 || nameOf(last) != fmt.Sprint(maxLookedUp-1, ".test") {
		t.Errorf("%d names are kept; it tells %+v, and %d others", len(f.names), last, others)
	}
}

func TestWithoutNameserversAFailureNamesNone(t *testing.T) {
	t.Parallel()
	r := configured(t, listing("packages.example.com"), func(c *Config) { c.Dial = noDial(t) })
	ask(t, r, asksFor, dnsmessage.TypeA)
	if last, _ := r.Failures(); last == nil || last.Nameserver.IsValid() || !errors.Is(last.Err, errNoServer) {
		t.Errorf("it tells %+v", last)
	}
}
