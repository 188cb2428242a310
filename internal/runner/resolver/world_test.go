package resolver

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nameserver is a DNS server on loopback that answers as a test says.
type nameserver struct {
	t    testing.TB
	addr netip.AddrPort
	// answer returns the messages that are sent, in their order. Overwritten before the server is asked.
	answer func(asked dnsmessage.Message, network string) [][]byte

	mu    sync.Mutex
	asked []asked
}

// asked is a query that a nameserver got.
type asked struct {
	network, name string
	kind          dnsmessage.Type
	edns          bool
	message       dnsmessage.Message
}

// newNameserver starts a server for datagrams and streams on one port, and ends it with the test.
func newNameserver(t testing.TB, answer func(asked dnsmessage.Message, network string) [][]byte) *nameserver {
	t.Helper()
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := streams.Addr().(*net.TCPAddr).AddrPort()
	datagrams, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		streams.Close()
		t.Skipf("the port %v is taken for UDP: %v", addr, err)
	}
	s := &nameserver{t: t, addr: addr, answer: answer}
	var serving sync.WaitGroup
	serving.Go(func() { s.serveDatagrams(datagrams) })
	serving.Go(func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serveStream(conn) })
		}
	})
	t.Cleanup(func() {
		streams.Close()
		datagrams.Close()
		serving.Wait()
	})
	return s
}

func (s *nameserver) serveDatagrams(conn *net.UDPConn) {
	buffer := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		for _, msg := range s.handle(buffer[:n], "udp") {
			_, _ = conn.WriteToUDPAddrPort(msg, from)
		}
	}
}

func (s *nameserver) serveStream(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	msg, err := readMessage(conn, maxStreamMessage)
	if err != nil {
		return
	}
	for _, answer := range s.handle(msg, "tcp") {
		_ = writeMessage(conn, answer)
	}
}

func (s *nameserver) handle(raw []byte, network string) [][]byte {
	var msg dnsmessage.Message
	if err := msg.Unpack(raw); err != nil || len(msg.Questions) != 1 {
		s.t.Errorf("the nameserver got %x: %v", raw, err)
		return nil
	}
	q := msg.Questions[0]
	s.mu.Lock()
	s.asked = append(s.asked, asked{network, q.Name.String(), q.Type, len(msg.Additionals) > 0, msg})
	s.mu.Unlock()
	return s.answer(msg, network)
}

// queries returns what was asked so far.
func (s *nameserver) queries() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.asked...)
}

// zone answers by name and type with addresses, or with an alias where the text isn't one.
func zone(records map[string][]string) func(dnsmessage.Message, string) [][]byte {
	return func(asked dnsmessage.Message, _ string) [][]byte {
		return [][]byte{packed(zoneAnswer(asked, records))}
	}
}

func zoneAnswer(asked dnsmessage.Message, records map[string][]string) dnsmessage.Message {
	msg := replyTo(asked)
	name := asked.Questions[0].Name.String()
	if _, ok := records[name]; !ok {
		msg.RCode = dnsmessage.RCodeNameError
	}
	for range 20 {
		next := ""
		for _, text := range records[name] {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				next = text
				msg.Answers = append(msg.Answers, record(name, 300, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(text)}))
				continue
			}
			if addr.Is4() == (asked.Questions[0].Type == dnsmessage.TypeA) {
				msg.Answers = append(msg.Answers, record(name, 300, addrBody(addr)))
			}
		}
		if name = next; name == "" {
			break
		}
	}
	return msg
}

func replyTo(asked dnsmessage.Message) dnsmessage.Message {
	return dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: asked.Questions,
	}
}

func addrBody(addr netip.Addr) dnsmessage.ResourceBody {
	if addr.Is4() {
		return &dnsmessage.AResource{A: addr.As4()}
	}
	return &dnsmessage.AAAAResource{AAAA: addr.As16()}
}

func record(owner string, ttl uint32, body dnsmessage.ResourceBody) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET, TTL: ttl}
	return dnsmessage.Resource{Header: h, Body: body}
}

func packed(msg dnsmessage.Message) []byte {
	raw, err := msg.Pack()
	if err != nil {
		panic(err)
	}
	return raw
}

var surroundings = network.Surroundings{
	Node:      []netip.Addr{netip.MustParseAddr("192.168.5.10")},
	APIServer: []netip.Addr{netip.MustParseAddr("203.0.113.6")}, APIServerService: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
	Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	Pods:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	Domain:   "cluster.local",
}

// listing is a policy that lists hosts, in a cluster.
func listing(hosts ...string) *network.Rules {
	r := &network.Rules{Mode: network.Listed, Surroundings: surroundings}
	for _, host := range hosts {
		r.Allowed = append(r.Allowed, network.Entry{Host: host})
	}
	return r
}

var openRules = &network.Rules{Mode: network.Open, Surroundings: surroundings}

// newResolver makes a resolver that ends with the test.
func newResolver(t testing.TB, rules *network.Rules, servers ...*nameserver) *Resolver {
	t.Helper()
	return configured(t, rules, func(c *Config) {
		for _, s := range servers {
			c.Nameservers = append(c.Nameservers, s.addr)
		}
	})
}

func configured(t testing.TB, rules *network.Rules, change func(*Config)) *Resolver {
	t.Helper()
	decider, err := network.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Rules: decider}
	change(&c)
	r := New(c)
	t.Cleanup(r.Close)
	return r
}

// askMessage sends a message as a datagram and returns what comes back, nil if nothing does.
func askMessage(t testing.TB, r *Resolver, msg []byte) []byte {
	t.Helper()
	got := make(chan []byte, 1)
	r.Datagram(msg, func(answer []byte) { got <- answer })
	return <-got
}

// ask looks a name up with EDNS, and reads the answer.
func ask(t testing.TB, r *Resolver, name string, kind dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	return unpacked(t, askMessage(t, r, packed(queryFor(name, kind))))
}

func unpacked(t testing.TB, raw []byte) dnsmessage.Message {
	t.Helper()
	var msg dnsmessage.Message
	if err := msg.Unpack(raw); err != nil {
		t.Fatalf("the answer %x: %v", raw, err)
	}
	return msg
}

func queryFor(name string, kind dnsmessage.Type) dnsmessage.Message {
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(4096, 0, false); err != nil {
		panic(err)
	}
	return dnsmessage.Message{
		Header:      dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}},
	}
}

// addrsOf are the addresses of an answer, each owned by the asked name.
func addrsOf(t testing.TB, msg dnsmessage.Message) (list []string) {
	t.Helper()
	for _, a := range msg.Answers {
		if a.Header.Name != msg.Questions[0].Name {
			t.Errorf("a record of %v answers %v", a.Header.Name, msg.Questions[0].Name)
		}
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			list = append(list, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			list = append(list, netip.AddrFrom16(body.AAAA).String())
		default:
			t.Errorf("a record of the type %v answers", a.Header.Type)
		}
	}
	return list
}

// explanation is the text of an extended error.
func explanation(msg dnsmessage.Message) string {
	for _, a := range msg.Additionals {
		if opt, ok := a.Body.(*dnsmessage.OPTResource); ok {
			for _, o := range opt.Options {
				return string(o.Data[2:])
			}
		}
	}
	return ""
}

// extendedCode is the code of an extended error; 0 if there is none.
func extendedCode(msg dnsmessage.Message) uint16 {
	for _, a := range msg.Additionals {
		if opt, ok := a.Body.(*dnsmessage.OPTResource); ok {
			for _, o := range opt.Options {
				return binary.BigEndian.Uint16(o.Data)
			}
		}
	}
	return 0
}

// canConnect says whether the call may connect to an address on the default port.
func canConnect(r *Resolver, addr string) bool {
	to := netip.AddrPortFrom(netip.MustParseAddr(addr), network.DefaultPort)
	return r.Decide(to, network.TCP).Allowed
}

// noDial fails a test whose resolver asks anybody.
func noDial(t testing.TB) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, address string) (net.Conn, error) {
		t.Errorf("%s is asked", address)
		return nil, net.ErrClosed
	}
}
