package resolver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

const asksFor = "packages.example.com."

// simple is the right answer.
func simple(asked dnsmessage.Message) dnsmessage.Message {
	msg := replyTo(asked)
	msg.Answers = []dnsmessage.Resource{record(asksFor, 300, addrBody(netip.MustParseAddr("198.51.100.7")))}
	return msg
}

// hostile is an answer that must not be believed: it has another address.
func hostile(asked dnsmessage.Message, change func(*dnsmessage.Message)) []byte {
	msg := replyTo(asked)
	msg.Answers = []dnsmessage.Resource{record(asked.Questions[0].Name.String(), 300, addrBody(netip.MustParseAddr("203.0.113.66")))}
	change(&msg)
	return packed(msg)
}

func truncated(asked dnsmessage.Message, addrs ...string) []byte {
	msg := replyTo(asked)
	msg.Truncated = true
	for _, addr := range addrs {
		msg.Answers = append(msg.Answers, record(asksFor, 300, addrBody(netip.MustParseAddr(addr))))
	}
	return packed(msg)
}

func one(msg dnsmessage.Message) [][]byte { return [][]byte{packed(msg)} }

// oddServers are nameservers, and what a lookup makes of them.
var oddServers = map[string]struct {
	server func(asked dnsmessage.Message, network string) [][]byte
	addrs  string
	code   dnsmessage.RCode
	// asked are the networks of the queries, in their order, with "+" for EDNS.
	asked string
}{
	"a truncated answer is asked for on a stream": {func(asked dnsmessage.Message, network string) [][]byte {
		if network == "udp" {
			return [][]byte{truncated(asked, "203.0.113.66")}
		}
		return one(simple(asked))
	}, "198.51.100.7", 0, "udp+ tcp+"},
	"of a nameserver that truncates all, what came counts": {func(asked dnsmessage.Message, network string) [][]byte {
		if network == "tcp" {
			return nil
		}
		return [][]byte{truncated(asked, "198.51.100.7")}
	}, "198.51.100.7", 0, "udp+ tcp+"},
	"a record that is cut in a truncated answer doesn't count": {func(asked dnsmessage.Message, network string) [][]byte {
		if network == "tcp" {
			return nil
		}
		whole := truncated(asked, "198.51.100.7", "203.0.113.66")
		return [][]byte{whole[:len(whole)-2]}
	}, "198.51.100.7", 0, "udp+ tcp+"},
	"a truncated answer without addresses isn't none": {func(asked dnsmessage.Message, network string) [][]byte {
		return [][]byte{truncated(asked)}
	}, "", dnsmessage.RCodeServerFailure, "udp+ tcp+ udp tcp udp tcp"},
	"a nameserver that refuses EDNS is asked without": {func(asked dnsmessage.Message, _ string) [][]byte {
		if len(asked.Additionals) > 0 {
			msg := replyTo(asked)
			msg.RCode = dnsmessage.RCodeFormatError
			return one(msg)
		}
		return one(simple(asked))
	}, "198.51.100.7", 0, "udp+ udp"},
	"one that repeats no question then is asked without too": {func(asked dnsmessage.Message, _ string) [][]byte {
		if len(asked.Additionals) > 0 {
			return one(dnsmessage.Message{Header: dnsmessage.Header{ID: asked.ID, Response: true, RCode: dnsmessage.RCodeNotImplemented}})
		}
		return one(simple(asked))
	}, "198.51.100.7", 0, "udp+ udp"},
	"a nameserver that fails is asked a few times": {func(asked dnsmessage.Message, _ string) [][]byte {
		msg := replyTo(asked)
		msg.RCode = dnsmessage.RCodeServerFailure
		return one(msg)
	}, "", dnsmessage.RCodeServerFailure, "udp+ udp udp"},
	"a nameserver that refuses is asked a few times": {func(asked dnsmessage.Message, _ string) [][]byte {
		msg := replyTo(asked)
		msg.RCode = dnsmessage.RCodeRefused
		return one(msg)
	}, "", dnsmessage.RCodeServerFailure, "udp+ udp udp"},
	"addresses of an answer that says otherwise don't count": {func(asked dnsmessage.Message, _ string) [][]byte {
		return [][]byte{hostile(asked, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError })}
	}, "", dnsmessage.RCodeNameError, "udp+"},
	"an answer that can't be read is none": {func(asked dnsmessage.Message, _ string) [][]byte {
		whole := packed(simple(asked))
		return [][]byte{whole[:len(whole)-2]}
	}, "", dnsmessage.RCodeServerFailure, "udp+ udp udp"},
	"datagrams that don't answer the question are passed over": {func(asked dnsmessage.Message, _ string) [][]byte {
		return [][]byte{
			hostile(asked, func(m *dnsmessage.Message) { m.ID++ }),
			hostile(asked, func(m *dnsmessage.Message) { m.Response = false }),
			hostile(asked, func(m *dnsmessage.Message) { m.OpCode = 4 }),
			hostile(asked, func(m *dnsmessage.Message) { m.Questions = nil }),
			hostile(asked, func(m *dnsmessage.Message) { m.Questions = append(slices.Clone(m.Questions), m.Questions[0]) }),
			hostile(asked, func(m *dnsmessage.Message) {
				m.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("other.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
			}),
			hostile(asked, func(m *dnsmessage.Message) {
				m.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName(asksFor), Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET}}
			}),
			hostile(asked, func(m *dnsmessage.Message) {
				m.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName(asksFor), Type: dnsmessage.TypeA, Class: dnsmessage.ClassCHAOS}}
			}),
			hostile(asked, func(m *dnsmessage.Message) { m.Questions, m.RCode = nil, dnsmessage.RCodeNameError }),
			{}, {1, 2, 3}, packed(simple(asked)),
		}
	}, "198.51.100.7", 0, "udp+"},
	"where somebody guesses, the question is asked on a stream": {func(asked dnsmessage.Message, network string) [][]byte {
		if network == "tcp" {
			return one(simple(asked))
		}
		return slices.Repeat([][]byte{hostile(asked, func(m *dnsmessage.Message) { m.ID++ })}, maxStrays)
	}, "198.51.100.7", 0, "udp+ tcp+"},
	"a stream's answer to something else is none": {func(asked dnsmessage.Message, network string) [][]byte {
		if network == "udp" {
			return [][]byte{truncated(asked, "198.51.100.7")}
		}
		return [][]byte{hostile(asked, func(m *dnsmessage.Message) { m.ID++ })}
	}, "198.51.100.7", 0, "udp+ tcp+"},
	"records of other names, types, classes and sections don't count": {func(asked dnsmessage.Message, _ string) [][]byte {
		poison := func(name string) dnsmessage.Resource {
			return record(name, 300, addrBody(netip.MustParseAddr("203.0.113.66")))
		}
		chaos := poison(asksFor)
		chaos.Header.Class = dnsmessage.ClassCHAOS
		msg := simple(asked)
		msg.Answers = append(msg.Answers, poison("other.example."), record(asksFor, 300, addrBody(netip.MustParseAddr("2001:db8::66"))), chaos,
			record(asksFor, 300, &dnsmessage.TXTResource{TXT: []string{"x"}}),
			record("other.example.", 300, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(asksFor)}))
		msg.Authorities = append(msg.Authorities, poison(asksFor), record("com.", 300, &dnsmessage.NSResource{NS: dnsmessage.MustNewName("evil.example.")}))
		msg.Additionals = append(msg.Additionals, poison(asksFor), poison("evil.example."))
		return one(msg)
	}, "198.51.100.7", 0, "udp+"},
	"addresses beside an alias don't count": {func(asked dnsmessage.Message, _ string) [][]byte {
		msg := replyTo(asked)
		msg.Answers = []dnsmessage.Resource{
			record(asksFor, 300, addrBody(netip.MustParseAddr("203.0.113.66"))),
			record(asksFor, 300, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("Edge.example.")}),
			record(asksFor, 300, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("second.example.")}),
			record("second.example.", 300, addrBody(netip.MustParseAddr("203.0.113.66"))),
			record("eDGE.example.", 300, addrBody(netip.MustParseAddr("198.51.100.7"))),
		}
		return one(msg)
	}, "198.51.100.7", 0, "udp+"},
	"an address that comes twice counts once": {func(asked dnsmessage.Message, _ string) [][]byte {
		msg := simple(asked)
		msg.Answers = append(msg.Answers, msg.Answers...)
		return one(msg)
	}, "198.51.100.7", 0, "udp+"},
	"an alias of itself fails": {chain(func(int) string { return asksFor }), "", dnsmessage.RCodeServerFailure, "udp+ udp udp"},
	"the longest chain is followed": {chain(func(i int) string {
		if i < maxChain-1 {
			return fmt.Sprintf("n%d.example.", i)
		}
		return ""
	}), "198.51.100.7", 0, "udp+"},
	"a longer chain fails": {chain(func(i int) string {
		if i < maxChain {
			return fmt.Sprintf("n%d.example.", i)
		}
		return ""
	}), "", dnsmessage.RCodeServerFailure, "udp+ udp udp"},
	"an endless chain fails": {chain(func(i int) string {
		if i < 600 {
			return fmt.Sprintf("n%d.example.", i)
		}
		return ""
	}), "", dnsmessage.RCodeServerFailure, "udp+ tcp+ udp tcp udp tcp"},
}

func TestNameserversThatBehaveOddly(t *testing.T) {
	t.Parallel()
	for sentence, tc := range oddServers {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := newNameserver(t, tc.server)
			r := newResolver(t, listing("packages.example.com"), s)
			got := ask(t, r, asksFor, dnsmessage.TypeA)
			if got.RCode != tc.code || strings.Join(addrsOf(t, got), " ") != tc.addrs {
				t.Errorf("got %v with %q", got.RCode, addrsOf(t, got))
			}
			var asked []string
			for _, q := range s.queries() {
				if q.edns {
					q.network += "+"
				}
				asked = append(asked, q.network)
			}
			if all := strings.Join(asked, " "); all != tc.asked {
				t.Errorf("asked by %s", all)
			}
			for _, addr := range []string{"203.0.113.66", "2001:db8::66"} {
				if canConnect(r, addr) {
					t.Errorf("%s can be reached", addr)
				}
			}
		})
	}
}

// chain answers with aliases, to what next says, and an address at their end. What has no room in a datagram is truncated
// to nothing.
func chain(next func(int) string) func(dnsmessage.Message, string) [][]byte {
	return func(asked dnsmessage.Message, network string) [][]byte {
		msg := replyTo(asked)
		name := asksFor
		for i := range 700 {
			to := next(i)
			if to == "" {
				break
			}
			msg.Answers = append(msg.Answers, record(name, 300, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(to)}))
			if name = to; to == asksFor {
				break
			}
		}
		msg.Answers = append(msg.Answers, record(name, 300, addrBody(netip.MustParseAddr("198.51.100.7"))))
		if raw := packed(msg); len(raw) <= advertised || network == "tcp" {
			return [][]byte{raw}
		}
		return [][]byte{truncated(asked)}
	}
}

func TestDatagramsOfOthersAreNotRead(t *testing.T) {
	t.Parallel()
	other, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	// The server has the real one's question and id sent from another socket first, to the port that asked.
	from := make(chan net.Addr, 1)
	s := newNameserver(t, func(asked dnsmessage.Message, _ string) [][]byte {
		if _, err := other.WriteTo(hostile(asked, func(*dnsmessage.Message) {}), <-from); err != nil {
			t.Error(err)
		}
		return one(simple(asked))
	})
	r := configured(t, listing("packages.example.com"), func(c *Config) {
		c.Nameservers = []netip.AddrPort{s.addr}
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				from <- conn.LocalAddr()
			}
			return conn, err
		}
	})
	if got := addrsOf(t, ask(t, r, asksFor, dnsmessage.TypeA)); !slices.Equal(got, []string{"198.51.100.7"}) {
		t.Errorf("got %q", got)
	}
}

func TestIdsAreNotInOrder(t *testing.T) {
	t.Parallel()
	s := newNameserver(t, zone(world))
	r := newResolver(t, listing("packages.example.com"), s)
	steps := map[uint16]bool{}
	for range 16 {
		ask(t, r, asksFor, dnsmessage.TypeA)
	}
	asked := s.queries()
	for i := range asked[1:] {
		steps[asked[i+1].message.ID-asked[i].message.ID] = true
	}
	if len(steps) < 8 {
		t.Errorf("the ids of 16 queries have %d steps", len(steps))
	}
}
