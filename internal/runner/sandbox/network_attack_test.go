package sandbox

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// child runs a child of this binary behind the gate.
func child(t *testing.T, n *sockets.Network, name string, args ...string) string {
	t.Helper()
	out, _ := (&command{network: n, argv: append([]string{self(t)}, args...), env: []string{childVariable + "=" + name}}).run(t)
	return out
}

func TestAnAddressThatChangesUnderTheLookReachesNothing(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		listed, other := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
		out := child(t, &sockets.Network{Connections: allow1(listed.address())}, "race-address", listed.port(), other.port(), "3000")
		if out != "true true\n" {
			t.Errorf("the race isn't one: %s", out)
		}
		if n := other.accepted.Load(); n != 0 || listed.accepted.Load() == 0 {
			t.Errorf("%d connections escaped, %d were let through", n, listed.accepted.Load())
		}
	})
}

func TestAnAddressThatChangesUnderTheLookDoesNotTakeTheNameservers(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		// The kernel chooses none so low for a socket that asks for any.
		ns := netip.MustParseAddrPort("127.0.0.1:53")
		n := &sockets.Network{Connections: allow1(), Nameservers: []netip.AddrPort{ns}, Datagrams: &echo{}}
		if out := child(t, n, "race-bind", strconv.Itoa(int(ns.Port())), "3000"); out != "true true 0\n" {
			t.Errorf("bound, refused, taken: %s", out)
		}
	})
}

// Where the gate lets the kernel connect a Unix socket, what is put in its place meanwhile is stopped by Landlock. Elsewhere the kernel
// connects none.
func TestADescriptorThatIsSwappedUnderTheLookReachesNothing(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		if n := swapDescriptors(t, false, "5000"); n > 0 {
			t.Errorf("%d connections escaped", n)
		}
	})
}

// Without both, some get through: otherwise the test above would show nothing.
func TestADescriptorThatIsSwappedGetsThroughWithoutLandlock(t *testing.T) {
	if supportOnce().LandlockABI < rules.ABIConnections {
		t.Skip("the kernel connects no socket here")
	}
	if swapDescriptors(t, true, "20000") == 0 {
		t.Error("no connection escaped")
	}
}

// swapDescriptors returns how many connections escaped.
func swapDescriptors(t *testing.T, withoutLandlock bool, tries string) int64 {
	t.Helper()
	other := serve(t, "127.0.0.1:0")
	c := &command{
		network: &sockets.Network{Connections: allow1()}, argv: []string{self(t), other.port(), tries},
		env: []string{childVariable + "=race-descriptor"}, withoutLandlock: withoutLandlock,
	}
	if out, _ := c.run(t); out != "true true\n" {
		t.Errorf("the race isn't one: %s", out)
	}
	return other.accepted.Load()
}

// A socket that a server accepted was never held. Disconnected, it could connect anew.
func TestLandlockHoldsSocketsThatWereAccepted(t *testing.T) {
	other := serve(t, "127.0.0.1:0")
	out, _ := python(t, &sockets.Network{Connections: &decider{all: true, refused: map[netip.AddrPort]bool{other.address(): true}}}, `
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); a, _ = l.accept()
for s in (a, c, l):
    print(libc.connect(s.fileno(), ctypes.create_string_buffer(16), 16), errno.errorcode[ctypes.get_errno()], code(s.connect, ("127.0.0.1", port(1))))
`, other.port())
	if want := strings.Repeat("-1 EISCONN EISCONN\n", 3); out != want {
		t.Errorf("got %s", out)
	}
	ruleset, err := kernel.NewRuleSet(0, unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, 0)
	if err != nil {
		t.Skip(err)
	}
	defer ruleset.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	f, err := accepted.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var disconnected, connected unix.Errno
	kernel.OnThreadOfItsOwn(func() {
		if kernel.RestrictSelf(ruleset.Descriptor()) != nil {
			return
		}
		disconnected = connectSocket(int(f.Fd()), make([]byte, unix.SizeofSockaddrInet4))
		connected = connectSocket(int(f.Fd()), addressOf(other.port()))
	})
	if disconnected != 0 || connected != unix.EACCES {
		t.Errorf("disconnecting: %v, connecting anew: %v", disconnected, connected)
	}
	if n := other.accepted.Load(); n != 0 {
		t.Errorf("%d connections escaped", n)
	}
}

func TestSocketsFromOutsideConnectNowhere(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		other := serve(t, "127.0.0.1:0")
		var files []*os.File
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), "socket")
			defer f.Close()
			files = append(files, f)
		}
		c := &command{network: &sockets.Network{Connections: &decider{all: true}}, files: files, argv: []string{programPath(t, "python3"), "-c", pythonPrelude + `
a = ("127.0.0.1", port(1)); s, u = socket.socket(fileno=3), socket.socket(fileno=4)
print(code(s.connect, a), code(s.getpeername), code(u.connect, a), code(u.sendto, b"x", a))
`, other.port()}}
		if out, _ := c.run(t); out != "EISCONN ENOTCONN EACCES EACCES\n" || other.accepted.Load() != 0 {
			t.Errorf("got %s and %d connections", out, other.accepted.Load())
		}
	})
}

func TestEveryFormOfAnAddressIsJudgedAsOne(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		s := serve(t, "127.0.0.1:0")
		s6, err := net.Listen("tcp6", "[::1]:"+s.port())
		if err != nil {
			t.Skip(err)
		}
		defer s6.Close()
		d := allow1()
		out, o := python(t, &sockets.Network{Connections: d}, `
for f, a in ((2, ("127.0.0.1", port(1))), (10, ("::ffff:127.0.0.1", port(1))), (2, ("0.0.0.0", port(1))), (10, ("::ffff:0.0.0.0", port(1))),
             (10, ("::1", port(1))), (10, ("::", port(1))), (10, ("::1", port(1), 7, 1)), (10, ("fe80::1", 80, 0, 1))):
    print(code(socket.socket(f).connect, a), end=" ")
`, s.port())
		if out != strings.Repeat("EACCES ", 8) {
			t.Errorf("got %s", out)
		}
		loopback4, loopback6 := s.address(), netip.MustParseAddrPort("[::1]:"+s.port())
		want := []netip.AddrPort{loopback4, loopback4, loopback4, loopback4, loopback6, loopback6, loopback6, netip.MustParseAddrPort("[fe80::1]:80")}
		for i, asked := range d.asked {
			if asked != want[i] {
				t.Errorf("question %d was about %v, not %v", i, asked, want[i])
			}
		}
		if len(d.asked) != len(want) || len(o.Denied) != 3 || o.Denied[0].Count != 4 || s.accepted.Load() != 0 {
			t.Errorf("%d questions, %+v", len(d.asked), o.Denied)
		}
	})
}

func TestOtherWaysOutAreRefused(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		s := serve(t, "127.0.0.1:0")
		out, o := python(t, &sockets.Network{Connections: allow1()}, `
a = ("127.0.0.1", port(1)); raw = struct.pack("=HH4s8x", 2, socket.htons(port(1)), socket.inet_aton(a[0])); FO = 0x20000000
print(code(socket.socket().sendto, b"x", FO, a), code(socket.socket().sendmsg, [b"x"], [], FO, a), end=" ")
name = ctypes.create_string_buffer(raw); data = ctypes.create_string_buffer(b"x"); iov = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(data), 1))
msg = ctypes.create_string_buffer(struct.pack("QQQQQQII", ctypes.addressof(name), 16, ctypes.addressof(iov), 1, 0, 0, FO, 0))
print(libc.sendmmsg(socket.socket().fileno(), msg, 1, FO), errno.errorcode[ctypes.get_errno()])
s = socket.socket(); print(code(s.setsockopt, 6, 30, 1), code(s.connect, a), code(s.send, b"x"), code(s.sendto, b"x", 0, a), code(s.sendmsg, [b"x"], [], 0, a))
print(libc.sendmmsg(s.fileno(), msg, 1, 0x4000), errno.errorcode[ctypes.get_errno()])
print([code(socket.socket, f, t, p) for f, t, p in ((2, 1, 262), (10, 1, 262), (2, 1, 132), (2, 1, 256), (2, 5, 132), (2, 2, 136), (2, 2, 1), (10, 2, 58))])
print([code(socket.socket, f, t, p) for f, t, p in ((2, 3, 255), (2, 3, 1), (10, 3, 58), (2, 10, 0), (17, 3, 3), (17, 2, 3), (38, 5, 0), (40, 1, 0), (16, 3, 4), (16, 3, 9), (16, 3, 16))])
print({code(socket.socket, f, t) for f in range(3, 64) if f not in (10, 16) for t in (1, 2, 3, 5)})
print([code(socket.socketpair, f) for f in (2, 10, 30)])
s = socket.socket(); s6 = socket.socket(10); u = socket.socket(2, 2)
print(code(s.setsockopt, 0, 4, b"\x83\x07\x04\x7f\0\0\1\0"), [code(s6.setsockopt, 41, o, bytes(24)) for o in (6, 54, 55, 57, 59)], code(s.setsockopt, 6, 31, b"smc"), code(s.setsockopt, 6, 31, b"tls"))
print([code(u.setsockopt, 0, o, socket.inet_aton("224.1.2.3") + bytes(132)) for o in (35, 39, 42, 46)], [code(s6.setsockopt, 41, o, bytes(136)) for o in (20, 27, 42, 46)])
print([(libc.syscall(n, 8, 0, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()]) for n in (425, 426, 427, 323, 41 | 1 << 30)])
libc.prctl(4, 0); print(code(socket.socket().connect, a), libc.prctl(3))
`, s.port())
		want := `ENOTSUP ENOTSUP -1 ENOTSUP
None EACCES EPIPE EPIPE EPIPE
-1 EPIPE
['EPROTONOSUPPORT', 'EPROTONOSUPPORT', 'EPROTONOSUPPORT', 'EPROTONOSUPPORT', 'EPERM', 'EACCES', 'EACCES', 'EACCES']
['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EAFNOSUPPORT', 'EAFNOSUPPORT', 'EAFNOSUPPORT', 'EAFNOSUPPORT', 'EPROTONOSUPPORT', 'EPROTONOSUPPORT', 'EPROTONOSUPPORT']
{'EAFNOSUPPORT'}
['ENOTSUP', 'ENOTSUP', 'ENOTSUP']
EPERM ['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM'] ENOENT ENOENT
['EPERM', 'EPERM', 'EPERM', 'EPERM'] ['EPERM', 'EPERM', 'EPERM', 'EPERM']
[(-1, 'ENOSYS'), (-1, 'ENOSYS'), (-1, 'ENOSYS'), (-1, 'ENOSYS'), (-1, 'ENOSYS')]
EACCES 1
`
		if runtime.GOARCH == "amd64" && out != want {
			t.Errorf("got\n%swant\n%s", out, want)
		}
		if s.accepted.Load() != 0 || len(o.Denied) != 1 || o.Denied[0].Count != 2 {
			t.Errorf("%d connections escaped; denied %+v", s.accepted.Load(), o.Denied)
		}
	})
}

// When the supervisor ends, the kernel answers: nothing new goes out.
func TestNothingConnectsWhenTheSupervisorIsGone(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	python3 := programPath(t, "python3")
	source := pythonPrelude + full + `
s = socket.socket(); c = socket.create_connection(("127.0.0.1", port(1))); waits = []
t = threading.Thread(target=lambda: waits.append(code(socket.socket().connect, F))); t.start(); connects(t)
parent = os.getppid(); print("ready"); sys.stdout.flush()
while os.getppid() == parent: os.sched_yield()
t.join(); u = socket.socket(socket.AF_UNIX)
print(waits, code(s.connect, ("127.0.0.1", port(1))), code(socket.socket), code(s.bind, ("", 0)), code(u.connect, "/x"), c.recv(10), c.send(b"x"))`
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(self(t), python3, "-c", source, s.port())
	cmd.Env = []string{childVariable + "=supervise"}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out := make([]byte, 4096)
	if n, err := r.Read(out); err != nil || string(out[:n]) != "ready\n" {
		t.Fatalf("%v: %s", err, out[:n])
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_ = r.SetReadDeadline(time.Now().Add(time.Minute))
	n, err := r.Read(out)
	if want := "['ENOSYS'] ENOSYS ENOSYS ENOSYS ENOSYS b'hello\\n' 1\n"; err != nil || string(out[:n]) != want {
		t.Errorf("%v: %s", err, out[:n])
	}
	if s.accepted.Load() != 1 {
		t.Errorf("%d connections were accepted", s.accepted.Load())
	}
}
