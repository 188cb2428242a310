package sandbox

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

func TestACommandReachesWhatIsLetThroughAndNothingElse(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		listed, other := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
		d := allow1(listed.address())
		out, o := python(t, &sockets.Network{Connections: d}, `
s = socket.create_connection(("127.0.0.1", port(1)), 5); print(s.recv(10))
print(code(socket.create_connection, ("127.0.0.1", port(2)), 5))
print(code(socket.create_connection, ("127.0.0.1", port(2)), 5))
`, listed.port(), other.port())
		if want := "b'hello\\n'\nEACCES\nEACCES\n"; out != want {
			t.Errorf("got %s", out)
		}
		if listed.accepted.Load() != 1 || other.accepted.Load() != 0 {
			t.Errorf("%d and %d connections were accepted", listed.accepted.Load(), other.accepted.Load())
		}
		want := result.NetworkDenial{Host: "127.0.0.1", Port: other.address().Port(), Count: 2}
		if len(o.Denied) != 1 || o.Denied[0] != want || o.MoreDenied != 0 {
			t.Errorf("denied %+v and %d more", o.Denied, o.MoreDenied)
		}
		if o.Isolation.OpenUDP || o.Isolation.Programs {
			t.Errorf("isolation %+v", o.Isolation)
		}
	})
}

func TestAConnectionToANameserverGoesToTheResolver(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	nameserver := netip.MustParseAddrPort("127.0.0.1:53")
	n := &sockets.Network{Connections: allow1(), Nameservers: []netip.AddrPort{nameserver}, Resolver: s.address}
	out, o := python(t, n, `
for f, a in ((2, "127.0.0.1"), (10, "::ffff:127.0.0.1")):
    s = socket.socket(f); s.connect((a, 53)); print(s.recv(10))
`)
	if out != "b'hello\\n'\nb'hello\\n'\n" || len(o.Denied) > 0 || s.accepted.Load() != 2 {
		t.Errorf("got %s", out)
	}
	n.Resolver = func() netip.AddrPort { return netip.AddrPort{} }
	out, _ = python(t, n, `for f, a in ((2, "127.0.0.1"), (10, "::ffff:127.0.0.1")): print(code(socket.socket(f).connect, (a, 53)))`)
	if out != "ECONNREFUSED\nECONNREFUSED\n" {
		t.Errorf("a resolver that isn't there: %s", out)
	}
}

func TestARefusalSaysWhy(t *testing.T) {
	answers := map[uint16]network.Verdict{
		1: {Host: "packages.example.com", Rule: `add it to network.allowed of policy "agents"`},
		2: {Host: "10.1.2.3", Rule: "no"},
		3: {Host: "10.1.2.3", Rule: "no"},
	}
	out, o := python(t, &sockets.Network{Connections: decide(func(to netip.AddrPort, _ network.Protocol) network.Verdict { return answers[to.Port()] })}, `
for p in (2, 3, 1): print(code(socket.socket().connect, ("10.1.2.3", p)))
sys.exit(1)`)
	if out != "EACCES\nEACCES\nEACCES\n" {
		t.Errorf("got %s", out)
	}
	want := ` Reaching "packages.example.com" at port 1 by TCP was not allowed: add it to network.allowed of policy "agents".` +
		` 2 other addresses were refused too: "10.1.2.3:2" and "10.1.2.3:3".`
	if o.Message != want || " "+o.Refusal != want {
		t.Errorf("the message is %q", o.Message)
	}
}

type decide func(netip.AddrPort, network.Protocol) network.Verdict

func (d decide) Decide(to netip.AddrPort, p network.Protocol) network.Verdict { return d(to, p) }

func TestSocketsThatACommandClosesAreGivenUp(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		const unswept = 64 // more are swept before the next one is made
		before := descriptors(t)
		c := &command{network: &sockets.Network{Connections: allow1()}, argv: []string{programPath(t, "python3"), "-c", pythonPrelude + `
for i in range(1000):
    for k in (1, 2): socket.socket(2, k).close()
keep = [socket.socket(2, 1 + i % 2) for i in range(100)]
for i in range(1000): socket.socket().close()
print(*sorted({code(s.connect, ("127.0.0.1", 1)) for s in keep}))`}}
		r := c.start(t)
		line := make([]byte, 32)
		n, err := r.output.Read(line)
		if err != nil || string(line[:n]) != "EACCES ENETUNREACH\n" {
			t.Errorf("%v: %s", err, line[:n])
		}
		if held := descriptors(t) - before; held > 100+3*unswept {
			t.Errorf("%d sockets are held", held)
		}
		r.wait()
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors became %d", before, after)
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestACommandHasABoundedNumberOfUnconnectedSockets(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	out, _ := python(t, &sockets.Network{Connections: allow1(s.address())}, `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)) if resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 4096 else sys.exit("limit")
keep = []
try:
    while len(keep) < 2000: keep.append(socket.socket())
except OSError as e: print(errno.errorcode[e.errno], len(keep))
for x in keep[:50]: x.connect(("127.0.0.1", port(1)))
print(code(socket.socket) is not None, sum(x.recv(10) == b"hello\n" for x in keep[:50]))
`, s.port())
	if out != "ENFILE 1024\nTrue 50\n" {
		t.Errorf("got %s", out)
	}
}

func TestAHeldNetworkNeedsItsKernelAndItsDecider(t *testing.T) {
	var unavailable *UnavailableError
	if _, err := Prepare(connected, testPath, rules.Support{LandlockABI: rules.ABIConnections, Filter: true}); !errors.As(err, &unavailable) {
		t.Errorf("without a listener: %v", err)
	}
	domain, err := Prepare(connected, testPath, supportOnce())
	if err != nil {
		t.Skip(err)
	}
	defer domain.Close()
	listing, err := Prepare(&rules.Rules{Connections: true, Programs: &rules.Programs{Own: "true"}}, testPath, supportOnce())
	if err != nil {
		t.Fatal(err)
	}
	defer listing.Close()
	for _, d := range []*Domain{domain, listing} {
		if o := (&Start{Domain: d}).options(); !o.Has(filter.DenyNetwork) || o.Has(filter.Network) {
			t.Errorf("without a decider the filter is %b", o)
		}
	}
}

func TestAProgramThatCantBeStartedLeavesNoGate(t *testing.T) {
	domain, err := Prepare(connected, testPath, supportOnce())
	if err != nil {
		t.Skip(err)
	}
	defer domain.Close()
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	start := func() error {
		_, _, err := startCommand(&Start{
			Domain: domain, Program: "/nonexistent", Argv: []string{"x"}, Directory: int(root.Fd()), Network: &sockets.Network{Connections: allow1()},
		})
		return err
	}
	if err := start(); !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
	before := descriptors(t)
	for range 10 {
		_ = start()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func TestADeniedNetworkNeedsNoDecider(t *testing.T) {
	c := &command{denyNetwork: true, argv: []string{programPath(t, "python3"), "-c", pythonPrelude + `
print(code(socket.socket), code(socket.socket, 2, 2), code(socket.socket, 16, 3), socket.socket(socket.AF_UNIX).family == 1)`}}
	if out, _ := c.run(t); out != "EACCES EACCES EACCES True\n" {
		t.Errorf("got %s", out)
	}
}

// Programs and connections are held by one filter and one gate.
func TestProgramsAndConnectionsAreHeldTogether(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		s, other := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
		c := &command{
			network: &sockets.Network{Connections: allow1(s.address())}, argv: []string{programPath(t, "bash"), "-c", `
exec 3<>/dev/tcp/127.0.0.1/` + s.port() + `; read x <&3; echo $x
(exec 3<>/dev/tcp/127.0.0.1/` + other.port() + `) 2>/dev/null || echo refused; cat /etc/hostname 2>/dev/null || echo refused; true; exit 1`},
			rules: rules.Rules{WritePaths: []string{"/tmp"}, Programs: &rules.Programs{Own: "bash", Allowed: []string{"true"}}},
		}
		out, o := c.run(t)
		if out != "hello\nrefused\nrefused\n" || len(o.Denied) != 1 || len(o.Refused) != 1 || other.accepted.Load() != 0 {
			t.Errorf("got %s, denied %+v, refused %+v", out, o.Denied, o.Refused)
		}
		if !strings.Contains(o.Message, `cat" was not allowed to run`) || !strings.Contains(o.Message, "Reaching") {
			t.Errorf("the message is %q", o.Message)
		}
	})
}
