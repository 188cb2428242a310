package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

// asking is a dialer that notes what is asked, and answers nothing.
type asking struct {
	t     testing.TB
	names []string
}

func (a *asking) dial(context.Context, string, string) (net.Conn, error) {
	return &askingConn{asking: a}, nil
}

type askingConn struct {
	net.Conn
	asking *asking
}

func (c *askingConn) Write(raw []byte) (int, error) {
	var msg dnsmessage.Message
	if err := msg.Unpack(raw); err != nil || len(msg.Questions) != 1 {
		c.asking.t.Errorf("asked %x: %v", raw, err)
		return 0, io.ErrClosedPipe
	}
	c.asking.names = append(c.asking.names, strings.TrimSuffix(msg.Questions[0].Name.String(), "."))
	return len(raw), nil
}

func (c *askingConn) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
func (c *askingConn) Close() error             { return nil }

// FuzzQueries has any message answered: a response fits, can be read, answers that message, and nothing is asked but names
// that are listed.
func FuzzQueries(f *testing.F) {
	whole := packed(queryFor(asksFor, dnsmessage.TypeA))
	for _, msg := range [][]byte{
		nil, whole, whole[:20], packed(queryFor("a.wild.example.", dnsmessage.TypeAAAA)), packed(queryFor("private.example.org.", dnsmessage.TypeA)),
		packed(queryFor("localhost.", dnsmessage.TypeAAAA)), packed(queryFor(".", dnsmessage.TypeNS)), append(slices.Clone(whole[:12]), 0xc0, 12, 0, 1, 0, 1),
		append(slices.Clone(whole[:12]), 1, '*', 4, 'w', 'i', 'l', 'd', 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 0, 0, 1, 0, 1),
	} {
		f.Add(msg)
	}
	rules, err := network.Compile(listing("packages.example.com", "*.wild.example"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		a := &asking{t: t}
		r := New(Config{Rules: rules, Nameservers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}, Dial: a.dial})
		defer r.Close()
		response := r.answer(t.Context(), msg)
		for _, name := range a.names {
			if name != "packages.example.com" && !strings.HasSuffix(name, ".wild.example") || strings.ToLower(name) != name || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
				t.Fatalf("%q is asked for %x", name, msg)
			}
		}
		if response == nil {
			if len(msg) >= headerSize && msg[2]&0x80 == 0 {
				t.Fatalf("%x isn't answered", msg)
			}
			return
		}
		for _, limit := range []int{response.query.datagram, maxStreamMessage} {
			checkResponse(t, msg, response.pack(limit), limit)
		}
		checkDenials(t, r)
	})
}

func checkResponse(t *testing.T, msg, raw []byte, limit int) {
	t.Helper()
	var got dnsmessage.Message
	if err := got.Unpack(raw); err != nil || len(raw) > limit {
		t.Fatalf("%x is answered with %d bytes %x: %v", msg, len(raw), raw, err)
	}
	if !got.Response || got.ID != binary.BigEndian.Uint16(msg) || got.Authoritative || len(got.Questions) > 1 || len(got.Authorities) > 0 {
		t.Fatalf("%x is answered with %+v", msg, got)
	}
	var asked dnsmessage.Parser
	if _, err := asked.Start(msg); err == nil && len(got.Questions) == 1 {
		if q, err := asked.Question(); err != nil || q != got.Questions[0] {
			t.Fatalf("%x is answered with the question %+v", msg, got.Questions[0])
		}
	}
}

func checkDenials(t *testing.T, r *Resolver) {
	t.Helper()
	list, _ := r.Denials()
	for _, d := range list {
		for _, c := range d.Host + d.Rule {
			if c < ' ' || c >= 0x7f {
				t.Fatalf("a refusal holds %q: %+v", c, d)
			}
		}
	}
}

// FuzzAnswers has any message read as a nameserver's answer. What is found must be what a slower reader finds, which has the
// library read the whole message and looks for each step in all of it.
func FuzzAnswers(f *testing.F) {
	asked := queryFor(asksFor, dnsmessage.TypeA)
	for _, msg := range []dnsmessage.Message{
		simple(asked), zoneAnswer(queryFor("alias.example.com.", dnsmessage.TypeA), world), zoneAnswer(queryFor("circle.example.com.", dnsmessage.TypeA), world),
		zoneAnswer(queryFor(asksFor, dnsmessage.TypeAAAA), world),
	} {
		f.Add(packed(msg)[2:], true)
		f.Add(packed(msg)[2:], false)
	}
	for _, raw := range [][]byte{hostile(asked, func(m *dnsmessage.Message) { m.Questions = nil }), truncated(asked, "198.51.100.7")} {
		f.Add(raw[2:], true)
	}
	f.Fuzz(func(t *testing.T, rest []byte, ipv4 bool) {
		e := &exchange{name: "packages.example.com", kind: dnsmessage.TypeA, id: 7}
		if !ipv4 {
			e.kind = dnsmessage.TypeAAAA
		}
		msg := append([]byte{0, 7}, rest...)
		got, err := e.readAnswer(msg)
		if err != nil || len(got.addrs) == 0 {
			return
		}
		if want := slowAddrs(msg, e); !got.truncated && !slices.Equal(got.addrs, want) {
			t.Fatalf("%x: found %v, want %v", msg, got.addrs, want)
		}
		if got.ttl < 0 || got.ttl > maxTTL || got.code != dnsmessage.RCodeSuccess {
			t.Fatalf("%x: found %+v", msg, got)
		}
	})
}

func slowAddrs(raw []byte, e *exchange) (addrs []netip.Addr) {
	var p dnsmessage.Parser
	if _, err := p.Start(raw); err != nil || p.SkipAllQuestions() != nil {
		return nil
	}
	all, err := p.AllAnswers()
	if err != nil {
		return nil
	}
	at := e.name
	for step := 0; step < maxChain; {
		i := slices.IndexFunc(all, func(r dnsmessage.Resource) bool {
			return r.Header.Class == dnsmessage.ClassINET && r.Header.Type == dnsmessage.TypeCNAME && strings.EqualFold(r.Header.Name.String(), at+".")
		})
		if i < 0 {
			break
		}
		at = strings.TrimSuffix(all[i].Body.(*dnsmessage.CNAMEResource).CNAME.String(), ".")
		step++
	}
	for _, r := range all {
		if r.Header.Class != dnsmessage.ClassINET || r.Header.Type != e.kind || !strings.EqualFold(r.Header.Name.String(), at+".") {
			continue
		}
		var addr netip.Addr
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			addr = netip.AddrFrom4(body.A)
		case *dnsmessage.AAAAResource:
			addr = netip.AddrFrom16(body.AAAA)
		}
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// FuzzStreams has a client send any bytes. The stream ends with them, whatever they are.
func FuzzStreams(f *testing.F) {
	f.Add(framed(packed(queryFor("private.example.org.", dnsmessage.TypeA))), 3)
	f.Add([]byte{0, 0}, 1)
	f.Add([]byte{255, 255, 1}, 1)
	rules, err := network.Compile(listing("packages.example.com"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece int) {
		r := New(Config{Rules: rules})
		defer r.Close()
		conn := client(r)
		go func() {
			defer conn.Close()
			for part := range slices.Chunk(sent, 1+int(uint(piece)%64)) {
				if _, err := conn.Write(part); err != nil {
					return
				}
			}
		}()
		for {
			raw, err := readMessage(conn, maxStreamMessage)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			unpacked(t, raw)
		}
	})
}
