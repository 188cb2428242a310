package resolver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// pipes are nameservers in memory, by their addresses, for tests with a clock of their own.
type pipes struct {
	mu      sync.Mutex
	servers map[string]func(asked dnsmessage.Message, network string) [][]byte
	dialed  []string
}

func (p *pipes) dial(_ context.Context, network, address string) (net.Conn, error) {
	p.mu.Lock()
	p.dialed = append(p.dialed, network+" "+address)
	answer := p.servers[address]
	p.mu.Unlock()
	if answer == nil {
		return nil, errors.New("connection refused")
	}
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		buffer := make([]byte, maxStreamMessage)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			var asked dnsmessage.Message
			if asked.Unpack(buffer[:n]) != nil {
				return
			}
			for _, msg := range answer(asked, network) {
				if _, err := server.Write(msg); err != nil {
					return
				}
			}
		}
	}()
	return client, nil
}

func silent(dnsmessage.Message, string) [][]byte { return nil }

func TestSilentNameserversAreNotWaitedForLong(t *testing.T) {
	right := func(asked dnsmessage.Message, _ string) [][]byte { return one(simple(asked)) }
	late := func(asked dnsmessage.Message, _ string) [][]byte {
		<-time.After(tryTimeout - time.Millisecond)
		return one(simple(asked))
	}
	first, second := "192.0.2.1:53", "192.0.2.2:53"
	for sentence, tc := range map[string]struct {
		servers map[string]func(dnsmessage.Message, string) [][]byte
		code    dnsmessage.RCode
		took    time.Duration
	}{
		"all are silent":                       {map[string]func(dnsmessage.Message, string) [][]byte{first: silent, second: silent}, dnsmessage.RCodeServerFailure, lookupTimeout},
		"one is silent":                        {map[string]func(dnsmessage.Message, string) [][]byte{first: silent, second: right}, 0, tryTimeout},
		"one isn't there":                      {map[string]func(dnsmessage.Message, string) [][]byte{second: right}, 0, 0},
		"one is late":                          {map[string]func(dnsmessage.Message, string) [][]byte{first: late}, 0, tryTimeout - time.Millisecond},
		"none is there":                        {nil, dnsmessage.RCodeServerFailure, retryPause},
		"one keeps sending what answers other": {map[string]func(dnsmessage.Message, string) [][]byte{first: drip, second: right}, 0, tryTimeout},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pipes{servers: tc.servers}
				r := configured(t, listing("packages.example.com"), func(c *Config) {
					c.Nameservers = []netip.AddrPort{netip.MustParseAddrPort(first), netip.MustParseAddrPort(second)}
					c.Dial = p.dial
				})
				start := time.Now()
				got := ask(t, r, asksFor, dnsmessage.TypeA)
				if took := time.Since(start); got.RCode != tc.code || took != tc.took {
					t.Errorf("got %v after %v", got.RCode, took)
				}
				r.Close()
				synctest.Wait()
			})
		})
	}
}

func TestANameserverThatStartsIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := &pipes{servers: map[string]func(dnsmessage.Message, string) [][]byte{"192.0.2.1:53": rightAnswer}}
		r := configured(t, listing("packages.example.com"), func(c *Config) {
			c.Nameservers = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if time.Since(start) < 2*retryPause {
					return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
				}
				return p.dial(ctx, network, address)
			}
		})
		got := ask(t, r, asksFor, dnsmessage.TypeA)
		if took := time.Since(start); got.RCode != 0 || len(got.Answers) != 1 || took != 2*retryPause {
			t.Errorf("got %+v after %v", got, took)
		}
		if last, others := r.Failures(); last != nil || others != 0 {
			t.Errorf("%+v failed, and %d others", last, others)
		}
		r.Close()
		synctest.Wait()
	})
}

// drip sends something every while, so that no single read takes long.
func drip(asked dnsmessage.Message, _ string) (all [][]byte) {
	<-time.After(time.Second)
	return [][]byte{hostile(asked, func(m *dnsmessage.Message) { m.ID++ })}
}

func TestTheNameserverThatAnsweredIsAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{servers: map[string]func(dnsmessage.Message, string) [][]byte{
			"192.0.2.1:53": silent, "192.0.2.2:53": func(asked dnsmessage.Message, _ string) [][]byte { return one(simple(asked)) },
		}}
		r := configured(t, listing("packages.example.com"), func(c *Config) {
			c.Nameservers = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")}
			c.Dial = p.dial
		})
		for range 3 {
			ask(t, r, asksFor, dnsmessage.TypeA)
		}
		want := []string{"udp 192.0.2.1:53", "udp 192.0.2.2:53", "udp 192.0.2.2:53", "udp 192.0.2.2:53"}
		if !slices.Equal(p.dialed, want) {
			t.Errorf("dialed %q", p.dialed)
		}
		r.Close()
		synctest.Wait()
	})
}

func TestWithoutNameserversLookupsFail(t *testing.T) {
	t.Parallel()
	r := configured(t, listing("packages.example.com"), func(c *Config) { c.Dial = noDial(t) })
	if got := ask(t, r, asksFor, dnsmessage.TypeA); got.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("got %v", got.RCode)
	}
}

func TestTimesToLive(t *testing.T) {
	t.Parallel()
	for sentence, tc := range map[string]struct {
		ttls []uint32
		want uint32
	}{
		"the shortest of the addresses":  {[]uint32{0, 300, 200}, 200},
		"that of an alias":               {[]uint32{40, 300, 200}, 40},
		"none":                           {[]uint32{0, 0, 300}, 0},
		"a long one is cut":              {[]uint32{0, 1 << 30, 1 << 30}, 3600},
		"one with the highest bit is 0":  {[]uint32{0, 1 << 31, 300}, 0},
		"one with all bits is 0":         {[]uint32{0, 300, 1<<32 - 1}, 0},
		"an alias with the highest bit":  {[]uint32{1 << 31, 300, 300}, 0},
		"the same for all, just the cap": {[]uint32{0, 3600, 3600}, 3600},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := newNameserver(t, func(asked dnsmessage.Message, _ string) [][]byte {
				msg := replyTo(asked)
				owner := asksFor
				if tc.ttls[0] > 0 {
					owner = "edge.example."
					msg.Answers = append(msg.Answers, record(asksFor, tc.ttls[0], &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(owner)}))
				}
				for i, ttl := range tc.ttls[1:] {
					msg.Answers = append(msg.Answers, record(owner, ttl, addrBody(netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}))))
				}
				return one(msg)
			})
			r := newResolver(t, listing("packages.example.com"), s)
			got := ask(t, r, asksFor, dnsmessage.TypeA)
			if len(got.Answers) != 2 || got.Answers[0].Header.TTL != tc.want || got.Answers[1].Header.TTL != tc.want {
				t.Errorf("got %+v", got.Answers)
			}
		})
	}
}
