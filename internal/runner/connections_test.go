package runner

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/runner/resolver"
	"toolcall.dev/operator/internal/spec"
)

// nameserver answers for names with their addresses, and for others that there is no data.
func nameserver(t *testing.T, addresses map[string][4]byte) netip.AddrPort {
	t.Helper()
	return answering(t, func(m *dnsmessage.Message) {
		q := m.Questions[0]
		if address, ok := addresses[strings.TrimSuffix(q.Name.String(), ".")]; ok && q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 60},
				Body:   &dnsmessage.AResource{A: address},
			}}
		}
	})
}

// answering is a nameserver whose answers are the questions, completed.
func answering(t *testing.T, complete func(*dnsmessage.Message)) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			complete(&m)
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// server accepts connections at a loopback address and says hello.
func server(t *testing.T, address string) int {
	t.Helper()
	l, err := net.Listen("tcp4", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("hello"))
			conn.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// surroundings are those of no cluster that there is.
func surroundings() network.Surroundings {
	return network.Surroundings{
		Node: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, APIServer: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		APIServerService: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Services: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/25")},
		Pods: []netip.Prefix{netip.MustParsePrefix("198.51.100.128/25")}, Domain: "cluster.local",
	}
}

// onlineCommand is a Python program whose connections are decided about. It has lookUp, which asks the nameserver that the pod's
// resolv.conf names, by TCP or by UDP, and reach, which connects.
func onlineCommand(t *testing.T, n *Network, source string) Command {
	t.Helper()
	needs(t, "python3")
	const prelude = `
import socket, struct, errno
def lookUp(name, tcp):
    question = b"".join(bytes([len(l.encode())]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack(">HH", 1, 1)
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + question
    if tcp:
        s = socket.create_connection(("127.0.0.1", 53), 20)
        s.sendall(struct.pack(">H", len(query)) + query)
        answer = s.recv(4096)[2:]
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(20)
        s.bind(("", 0))
        s.sendto(query, ("127.0.0.1", 53))
        answer, sender = s.recvfrom(4096)
        assert sender == ("127.0.0.1", 53), sender
    code, count = answer[3] & 15, struct.unpack(">H", answer[6:8])[0]
    return socket.inet_ntoa(answer[-4:]) if count else {0: "no data", 3: "no such name"}.get(code, code)
def reach(host, port):
    try:
        with socket.create_connection((host, port), 20) as s:
            return s.recv(5).decode()
    except OSError as e:
        return errno.errorcode[e.errno]
`
	cmd := python(prelude + source)
	cmd.Network, cmd.Dir = n, publicDir(t)
	return cmd
}

func online(t *testing.T, n *Network, source string) result.Outcome {
	t.Helper()
	return runIt(t, t.Context(), onlineCommand(t, n, source))
}

func listing(t *testing.T, addresses map[string][4]byte, hosts ...string) *Network {
	t.Helper()
	n := &Network{
		Network: spec.Network{Rules: network.Rules{Mode: network.Listed, DeniedCIDRs: []string{"127.0.0.2/32"}, Surroundings: surroundings()}, Nameservers: []netip.AddrPort{nameserver(t, addresses)}},
	}
	for _, host := range hosts {
		n.Rules.Allowed = append(n.Rules.Allowed, network.Entry{Host: host})
	}
	return n
}

func TestACommandReachesWhatItsRulesAllow(t *testing.T) {
	port := server(t, "127.0.0.3")
	n := listing(t, map[string][4]byte{"open.test": {127, 0, 0, 3}, "bound.test": {127, 0, 0, 2}, "other.test": {127, 0, 0, 3}}, "open.test", "bound.test")
	o := online(t, n, fmt.Sprintf(`
for tcp in (True, False):
    print(lookUp("open.test", tcp), lookUp("other.test", tcp), lookUp("bound.test", tcp))
print(reach("127.0.0.3", %d), reach("127.0.0.2", %d), reach("203.0.113.7", 443), reach("169.254.169.254", 80), reach("192.0.2.2", 443))
`, port, port))
	completed(strings.Repeat("127.0.0.3 no such name no data\n", 2)+"hello EACCES EACCES EACCES EACCES\n", "").check(t, o)
	want := map[string]int64{
		fmt.Sprint("127.0.0.2 ", port): 1, "203.0.113.7 443": 1, "169.254.169.254 80": 1, "192.0.2.2 443": 1,
		"other.test 0": 2, "bound.test 0": 2,
	}
	got := map[string]int64{}
	for _, d := range o.Denied {
		got[fmt.Sprint(d.Host, " ", d.Port)] = d.Count
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if o.Isolation.Network != result.NetworkHeld {
		t.Errorf("isolation: %+v", o.Isolation)
	}
}

func TestARefusedConnectionIsNamedInTheMessage(t *testing.T) {
	o := online(t, listing(t, nil, "open.test"), `
import sys
lookUp("packages.test", True)
sys.exit(reach("203.0.113.7", 443) == "EACCES" and 3)
`)
	for _, part := range []string{`"203.0.113.7"`, "port 443", `Looking up "packages.test" was not allowed`} {
		if o.Reason != result.NonZeroExit || !strings.Contains(o.Message, part) {
			t.Errorf("%s: %q lacks %q", o.Reason, o.Message, part)
		}
	}
}

// failing is a nameserver that answers SERVFAIL.
func failing(t *testing.T) netip.AddrPort {
	t.Helper()
	return answering(t, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure })
}

func TestALookupThatFailedIsNamedInTheMessage(t *testing.T) {
	for sentence, tc := range map[string]struct {
		nameserver func(t *testing.T) netip.AddrPort
		source     string
		reason     string
		// said has NAMESERVER for the address.
		said string
	}{
		"the nameserver fails": {failing, `lookUp("open.test", True); sys.exit(3)`, result.NonZeroExit,
			` Looking up "open.test" failed: the nameserver NAMESERVER was asked last: it answered SERVFAIL. Check that the cluster's DNS works, and that no NetworkPolicy keeps the call's pod from it.`},
		"it fails for several names": {failing, `lookUp("open.test", True); lookUp("other.test", True); sys.exit(3)`, result.NonZeroExit,
			` Looking up "other.test" and 1 other name failed: the nameserver NAMESERVER was asked last: it answered SERVFAIL. Check that the cluster's DNS works, and that no NetworkPolicy keeps the call's pod from it.`},
		"there is no nameserver": {func(*testing.T) netip.AddrPort { return netip.AddrPort{} }, `lookUp("open.test", True); sys.exit(3)`, result.NonZeroExit,
			` Looking up "open.test" failed: there is no nameserver. Check the resolv.conf of the operator, which calls get theirs from.`},
		"the call succeeds all the same": {failing, `lookUp("open.test", True)`, result.Completed, ""},
	} {
		n := listing(t, nil, "open.test", "other.test")
		n.Nameservers = nil
		at := tc.nameserver(t)
		if at.IsValid() {
			n.Nameservers = []netip.AddrPort{at}
		}
		o := online(t, n, "import sys\n"+tc.source)
		_, said, _ := strings.Cut(o.Message, ".")
		if want := strings.ReplaceAll(tc.said, "NAMESERVER", at.String()); o.Reason != tc.reason || said != want {
			t.Errorf("%s: %s says %q, want %q", sentence, o.Reason, said, want)
		}
	}
}

func TestNamesOfTheHostsFileCountAsLookedUp(t *testing.T) {
	n := listing(t, nil, "inside.test")
	n.Hosts = []resolver.HostsEntry{{Addr: netip.MustParseAddr("203.0.113.9"), Names: []string{"inside.test"}}}
	n.Rules.Allowed[0].Ports = []int{1}
	// A datagram socket is connected to an address that may be reached, and nothing is sent.
	o := online(t, n, `
def route(address):
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((address, 1)); return "connected"
    except OSError as e: return errno.errorcode[e.errno]
print(route("203.0.113.9"), route("203.0.113.10"))
`)
	if got := string(o.Stdout.Head); got != "connected ENETUNREACH\n" && got != "ENETUNREACH ENETUNREACH\n" {
		t.Errorf("got %q: %s", got, describe(o))
	}
}

func TestNobodyConnectsToAResolverItself(t *testing.T) {
	other, err := newConnections(listing(t, nil, "secret.test"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	o := online(t, listing(t, nil, "open.test"), fmt.Sprintf(`
s = socket.create_connection(("127.0.0.1", 53), 20)
print(s.getpeername()[1] != 53, reach(*s.getpeername()), reach("%s", %d), reach("::ffff:%[1]s", %[2]d))
`, other.queries().Addr(), other.queries().Port()))
	completed("True EACCES EACCES EACCES\n", "").check(t, o)
}

func TestAProtocolThatIsNotKnownIsRefused(t *testing.T) {
	n := listing(t, nil)
	n.Rules.UDP = true
	c, err := newConnections(n)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	to := netip.MustParseAddrPort("127.0.0.3:80")
	for p, want := range map[network.Protocol]bool{network.TCP: true, network.UDP: true, network.RouteLookup: true, network.RouteLookup + 1: false} {
		if v := c.resolver.Decide(to, p); v.Allowed != want || !want && v.Rule == "" {
			t.Errorf("protocol %d: %+v", p, v)
		}
	}
}

func TestRulesThatCanNotBeHeldKeepTheCommandFromStarting(t *testing.T) {
	for name, change := range map[string]func(*Network){
		"without the node's addresses": func(n *Network) { n.Rules.Surroundings.Node = nil },
		"with a host that's none":      func(n *Network) { n.Rules.Allowed[0].Host = "*" },
	} {
		n := listing(t, nil, "open.test")
		change(n)
		o := online(t, n, `print("ran")`)
		if o.Started || o.Reason != result.IsolationUnavailable || !strings.Contains(o.Message, "its network can't be restricted") {
			t.Errorf("%s: %s", name, describe(o))
		}
	}
}

// What one command's rules allow, the next one's needn't.
func TestTheNextCommandHasItsOwnRules(t *testing.T) {
	addresses := map[string][4]byte{"first.test": {127, 0, 0, 3}}
	for _, c := range []struct{ listed, want string }{{"first.test", "127.0.0.3\n"}, {"second.test", "no such name\n"}} {
		completed(c.want, "").check(t, online(t, listing(t, addresses, c.listed), `print(lookUp("first.test", True))`))
	}
}

// A name in a query has any bytes. It must not cost the call its result.
func TestARefusedNameOfAnyBytesLeavesTheOutcomeValid(t *testing.T) {
	for name, labels := range map[string]string{
		"bytes that are escaped": `["\x01"*60]*3`,
		"other letters":          `["\u4e2d"*20]*3`,
	} {
		for _, mode := range []network.Mode{network.Listed, network.Open} {
			n := listing(t, nil, "open.test")
			n.Rules.Mode = mode
			o := online(t, n, "import sys\nprint(lookUp('.'.join("+labels+"), True))\nsys.exit(3)")
			if o.Reason != result.NonZeroExit || string(o.Stdout.Head) != "no such name\n" {
				t.Fatalf("%s, %s: %s", name, mode, describe(o))
			}
			if len(o.Denied) != 1 || len(o.Denied[0].Host) > result.MaxDenialHost || !strings.Contains(o.Message, "no host can have this name") {
				t.Errorf("%s, %s: %+v, %q", name, mode, o.Denied, o.Message)
			}
		}
	}
}

// The resolver writes names in lower case, and so do clients.
func TestAKnownValueIsInNothingThatIsSaidAboutNames(t *testing.T) {
	const token = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
	name := token + ".example.com"
	refused := listing(t, nil, "open.test")
	open := listing(t, map[string][4]byte{strings.ToLower(name): {127, 0, 0, 2}})
	open.Rules.Mode = network.Open
	failing := listing(t, nil, "*.example.com")
	failing.Nameservers = []netip.AddrPort{answering(t, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeRefused })}
	for sentence, c := range map[string]struct {
		n      *Network
		source string
		denied string
		says   string
	}{
		"a name that isn't allowed":              {refused, "lookUp('" + name + "', True)", "[redacted: token].example.com", "add {host: [redacted: token].example.com}"},
		"one that the client has lowered before": {refused, "lookUp('" + name + "'.lower(), True)", "[redacted: token].example.com", "add {host: [redacted: token].example.com}"},
		"one that no host can have":              {refused, "lookUp('" + token + " .example'.lower(), True)", `"[redacted: token] .example."`, "no host can have this name"},
		"one whose address isn't allowed":        {open, "lookUp('" + name + "', True)", "[redacted: token].example.com", "127.0.0.2 ([redacted: token].example.com)"},
		"one that nobody can look up":            {failing, "lookUp('" + name + "', True)", "", `Looking up "[redacted: token].example.com" failed`},
	} {
		cmd := onlineCommand(t, c.n, c.source+"\nimport sys\nsys.exit(3)")
		values := []redact.Value{{Name: "token", Value: []byte(token)}}
		cmd.Redact = matching(values...)
		o := redacted(runIt(t, t.Context(), cmd), values)
		denied := ""
		for _, d := range o.Denied {
			denied += d.Host
		}
		if denied != c.denied || !strings.Contains(o.Message, c.says) || strings.Contains(strings.ToLower(o.Message), strings.ToLower(token)) {
			t.Errorf("%s: %+v, %q", sentence, o.Denied, o.Message)
		}
		if len(o.Redactions) != 1 || o.Redactions[0].Stream != result.RedactedMessage {
			t.Errorf("%s: redactions %+v", sentence, o.Redactions)
		}
	}
}
