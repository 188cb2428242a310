package sandbox

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// listenPackets makes a socket that counts what arrives.
func listenPackets(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	l, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.UDPConn)
}

// arrived returns what has arrived. On the loopback interface a datagram is there when it has been sent.
func arrived(t *testing.T, l *net.UDPConn) (all []string) {
	t.Helper()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
			if err != nil {
				return true
			}
			all = append(all, string(buffer[:n]))
		}
	})
	return all
}

// Each way to send is tried on IPv4 and IPv6 sockets, to IPv4, mapped and IPv6 addresses, and without the gate it arrives.
func TestAUDPSocketSendsNothing(t *testing.T) {
	l4, l6 := listenPackets(t, "127.0.0.1:0"), listenPackets(t, "[::1]:0")
	args := []string{l4.LocalAddr().String(), l6.LocalAddr().String()}
	plain := exec.Command(self(t), args...)
	plain.Env = []string{childVariable + "=send-datagrams"}
	out, err := plain.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	control := strings.Fields(strings.Join(append(arrived(t, l4), arrived(t, l6)...), " "))
	for _, way := range []string{"sendto", "sendmsg", "interface", "write", "writev", "cork", "seg", "splice", "vmsplice", "zerocopy"} {
		if !slices.ContainsFunc(control, func(got string) bool { return strings.Contains(got, way) }) {
			t.Errorf("without a gate nothing arrives by %s: %q\n%s", way, control, out)
		}
	}
	if !strings.Contains(string(out), "asynchronously") || !strings.Contains(string(out), "addrform") || !strings.Contains(string(out), "sendmmsg") {
		t.Errorf("without a gate not everything is sent: %s", out)
	}
	d := &decider{all: true}
	gated := child(t, &sockets.Network{Connections: d}, "send-datagrams", args...)
	if gated != "" {
		t.Errorf("taken for sent: %s", gated)
	}
	if got := append(arrived(t, l4), arrived(t, l6)...); len(got) > 0 {
		t.Errorf("arrived: %q", got)
	}
}

func TestUDPThatIsOpenedIsTheKernels(t *testing.T) {
	l, other := listenPackets(t, "127.0.0.1:0"), listenPackets(t, "127.0.0.1:0")
	to := netip.MustParseAddrPort(other.LocalAddr().String())
	d := &decider{all: true, refused: map[netip.AddrPort]bool{to: true}}
	_, port, _ := net.SplitHostPort(l.LocalAddr().String())
	_, closed, _ := net.SplitHostPort(other.LocalAddr().String())
	out, o := python(t, &sockets.Network{Connections: d, UDP: true}, `
a = ("127.0.0.1", port(1)); b = ("127.0.0.1", port(2))
s = socket.socket(2, 2); print(code(s.sendto, b"to", a), code(s.sendmsg, [b"msg"], [], 0, a), code(s.sendto, b"x", b), code(s.connect, b), code(s.connect, a), code(s.send, b"connected"))
`, port, closed)
	if out != "2 3 EACCES EACCES None 9\n" {
		t.Errorf("got %s", out)
	}
	if got := arrived(t, l); !slices.Equal(got, []string{"to", "msg", "connected"}) {
		t.Errorf("arrived: %q", got)
	}
	if !o.Isolation.OpenUDP || len(o.Denied) != 1 || o.Denied[0].Count != 2 {
		t.Errorf("%+v, denied %+v", o.Isolation, o.Denied)
	}
}

// echo answers each query with a mark and itself.
type echo struct {
	mu      sync.Mutex
	queries int
	// answer replaces the answer if it is set.
	answer func(query []byte, reply func([]byte))
}

func (e *echo) Datagram(query []byte, reply func([]byte)) {
	e.mu.Lock()
	e.queries++
	e.mu.Unlock()
	if e.answer != nil {
		e.answer(query, reply)
		return
	}
	reply(append([]byte("re:"), query...))
}

// freeAddress is an address of this machine where nobody listens by UDP.
func freeAddress(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	l := listenPackets(t, net.JoinHostPort(ip, "0"))
	a := netip.MustParseAddrPort(l.LocalAddr().String())
	l.Close()
	return a
}

func TestQueriesToTheNameserverAreAnsweredFromItsAddress(t *testing.T) {
	ns4, ns6, other := freeAddress(t, "127.0.0.1"), freeAddress(t, "::1"), freeAddress(t, "127.0.0.1")
	e := &echo{}
	out, o := python(t, &sockets.Network{Connections: allow1(), Nameservers: []netip.AddrPort{ns4, ns6}, Datagrams: e}, `
n4, n6, other = [eval(a) for a in sys.argv[1:]]
for f, to, bound in ((2, n4, ("", 0)), (2, n4, None), (2, n4, ("127.0.0.1", 0)), (10, n6, ("::", 0)), (10, n6, None), (10, ("::ffff:127.0.0.1", n4[1]), ("::", 0)), (10, ("::ffff:127.0.0.1", n4[1]), None)):
    s = socket.socket(f, 2); s.settimeout(10)
    if bound: s.bind(bound)
    print(s.sendto(b"query", to), s.recvfrom(100) == (b"re:query", to if f == 2 else to + (0, 0)))
print(code(s.sendto, bytes(4097), n4 if s.family == 2 else ("::ffff:127.0.0.1", n4[1])), s.sendto(b"", ("::ffff:127.0.0.1", n4[1])), s.recv(9))
s = socket.socket(2, 2); print(code(s.sendto, b"x", other), code(s.sendmsg, [b"x"], [], 0, n4), code(s.connect, other))
print(code(s.bind, ("127.0.0.1", n4[1])), code(s.bind, ("", n4[1])), code(socket.socket().bind, ("127.0.0.1", n4[1])))
print(libc.sendto(s.fileno(), 8, 5, 0, struct.pack("=HH4s8x", 2, socket.htons(n4[1]), socket.inet_aton("127.0.0.1")), 16), errno.errorcode[ctypes.get_errno()])
`, tuple(ns4), tuple(ns6), tuple(other))
	if want := strings.Repeat("5 True\n", 7) + "EMSGSIZE 0 b're:'\nEACCES EPIPE ENETUNREACH\nEADDRINUSE EADDRINUSE None\n-1 EFAULT\n"; out != want {
		t.Errorf("got %s", out)
	}
	if len(o.Denied) != 1 || o.Denied[0].Port != other.Port() || o.Denied[0].Count != 2 {
		t.Errorf("denied %+v", o.Denied)
	}
	if e.queries != 8 {
		t.Errorf("%d queries", e.queries)
	}
}

// tuple is an address as Python writes it.
func tuple(a netip.AddrPort) string {
	host, port, _ := net.SplitHostPort(a.String())
	return `("` + host + `", ` + port + `)`
}

func TestQueriesThatAreNotAnsweredAreLost(t *testing.T) {
	const waiting = 64
	ns := freeAddress(t, "127.0.0.1")
	var mu sync.Mutex
	var replies []func([]byte)
	e := &echo{answer: func(_ []byte, reply func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		replies = append(replies, reply)
	}}
	answer := func(with []byte) {
		mu.Lock()
		defer mu.Unlock()
		if len(replies) != waiting {
			t.Errorf("%d queries wait", len(replies))
		}
		for _, reply := range replies {
			reply(with)
		}
		replies = nil
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	c := &command{network: &sockets.Network{Connections: allow1(), Nameservers: []netip.AddrPort{ns}, Datagrams: e}, files: []*os.File{in}, argv: []string{
		programPath(t, "python3"), "-c", pythonPrelude + `
n = eval(sys.argv[1]); s = socket.socket(2, 2)
for _ in (1, 2): print({s.sendto(b"x", n) for _ in range(200)}, flush=True); os.read(3, 1)`, tuple(ns),
	}}
	r := c.start(t)
	said := make([]byte, 4)
	if n, err := r.output.Read(said); err != nil || string(said[:n]) != "{1}\n" {
		t.Errorf("%v: %s", err, said[:n])
	}
	answer(nil) // makes room for as many
	out.Close()
	if out, _ := r.wait(); out != "{1}\n" {
		t.Errorf("got %s", out)
	}
	answer([]byte("late")) // after the end: nobody gets it
}

func TestIPv6BeyondLoopback(t *testing.T) {
	got := string(inItsOwnNetwork(t, "connect-world"))
	want := `[2001:db8::2]:9: <nil> "9"
192.0.2.2:9: <nil> "9"
[::ffff:192.0.2.2]:9: <nil> "9"
[2001:db8::2]:10: permission denied ""
192.0.2.2:10: permission denied ""
[::ffff:192.0.2.2]:10: permission denied ""
[fe80::2%v0]:9: permission denied ""`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

// inItsOwnNetwork runs a child of this binary in a new network namespace.
func inItsOwnNetwork(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	for _, name := range []string{"unshare", "ip"} {
		programPath(t, name)
	}
	cmd := exec.Command("unshare", append([]string{"--net", "--mount", self(t)}, args...)...)
	cmd.Env = []string{childVariable + "=" + name, "PATH=" + testPath}
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("no network namespace here: %v: %s", err, out)
	}
	return bytes.TrimSpace(out)
}

// A network of its own, so that every packet can be counted.
func TestNoPacketOfAUDPSocketLeavesAnInterface(t *testing.T) {
	if got := string(inItsOwnNetwork(t, "packet-world", "plain")); got != "udp4 true udp6 true" {
		t.Errorf("without a gate: %s", got)
	}
	if got := string(inItsOwnNetwork(t, "packet-world", "gated")); got != "udp4 false udp6 false" {
		t.Errorf("with it: %s", got)
	}
}
