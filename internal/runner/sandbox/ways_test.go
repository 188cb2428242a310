package sandbox

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
	"toolcall.dev/operator/internal/testing/ways"
)

// support is what the node of the test gives: forced to be less in inEveryWay.
var support = func() rules.Support { return supportOnce() }

// inEveryWay runs a test as on each node that can hold rules.
func inEveryWay(t *testing.T, r *rules.Rules, test func(t *testing.T)) {
	t.Helper()
	here := supportOnce()
	t.Cleanup(func() { support = func() rules.Support { return supportOnce() } })
	for node := range ways.Of(here, r) {
		forced := node.Gives(here)
		support = func() rules.Support { return forced }
		t.Run(node.Name, test)
	}
}

// connected are rules of which nothing but connections is asked.
var connected = &rules.Rules{Connections: true}

// What programs do with Unix sockets comes to the same, whoever makes and connects them.
func TestUnixSocketsWorkInEveryWay(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		dir := publicDir(t)
		l, err := net.Listen("unix", filepath.Join(dir, "outside"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := os.Chmod(filepath.Join(dir, "outside"), 0o777); err != nil {
			t.Fatal(err)
		}
		out, _ := python(t, &sockets.Network{Connections: allow1()}, `
os.chdir(sys.argv[1]); U = socket.AF_UNIX
def S(kind=1): return socket.socket(U, kind)
for name in ("here", "./../" + os.path.basename(os.getcwd()) + "/deep", os.getcwd() + "/absolute", "\0abstract%d" % os.getpid()):
    l = S(); l.bind(name); l.listen(1); c = S(); c.connect(name); a, _ = l.accept(); c.send(b"x")
    print(a.recv(9), code(c.connect, name), code(c.getpeername) == name, end=" "); c.close(); print(a.recv(9)); l.close()
print(code(S().connect, "missing"), code(S().connect, "here"), code(S().connect, "/etc/passwd"), code(S().connect, ""), code(S().connect, "\0none"))
s = S(); print([libc.connect(s.fileno(), raw, n) for raw, n in ((bytes(16), 16), (bytes(1), 1), (struct.pack("=H", 2) + bytes(14), 16), (struct.pack("=H", 1) + b"x" * 120, 122))], errno.errorcode[ctypes.get_errno()])
l = S(); l.bind("busy"); l.listen(0); c1 = S(); c1.connect("busy"); c2 = S(); c2.setblocking(False); print(code(c2.connect, "busy"), end=" ")
c3 = S(); c3.setsockopt(socket.SOL_SOCKET, 21, struct.pack("qq", 0, 50000)); print(code(c3.connect, "busy"), end=" ")
c4 = S(); done = []; t = threading.Thread(target=lambda: done.append(code(c4.connect, "busy"))); t.start(); time.sleep(0.05); print(done, end=" "); l.accept(); t.join(); a, _ = l.accept(); print(done, code(c4.send, b"x"))
d = S(2); d.bind("datagrams"); e = S(2); e.connect("datagrams"); e.send(b"1"); S(2).sendto(b"2", "datagrams"); print(d.recv(9), d.recv(9), end=" ")
f = S(2); f.bind("\0other%d" % os.getpid()); e.connect("\0other%d" % os.getpid()); e.send(b"3"); print(f.recv(9), libc.connect(e.fileno(), bytes(2), 2), code(e.send, b"4"))
f.close(); f = S(2); print(code(f.bind, "\0other%d" % os.getpid()))
q = S(5); q.bind("packets"); q.listen(9); r = S(5); r.connect("packets"); r.send(b"5"); print(q.accept()[0].recv(9))
a, b = socket.socketpair(); a.send(b"6"); print(b.recv(9), code(a.connect, "busy"), code(socket.socket(U, 3).getsockname))
c = S(); c.connect("outside"); print(c.getpeername())
sys.stdout.flush()
if os.fork() == 0: s = S(); s.connect("/proc/self/cwd/busy"); print(s.getpeername(), flush=True); os._exit(0)
os.wait()
`, dir)
		want := `b'x' EISCONN True b''
b'x' EISCONN True b''
b'x' EISCONN True b''
b'x' EISCONN False b''
ENOENT ECONNREFUSED ECONNREFUSED EINVAL ECONNREFUSED
[-1, -1, -1, -1] EINVAL
EAGAIN EAGAIN [] [None] 1
b'1' b'2' b'3' 0 ENOTCONN
None
b'5'
b'6' EISCONN 
` + dir + `/outside
busy
`
		if out != want {
			t.Errorf("got\n%s", out)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		f, err := peer.(*net.UnixConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if who, err := unix.GetsockoptUcred(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil || int(who.Uid) != os.Getuid() {
			t.Errorf("the peer is %+v: %v", who, err)
		}
	})
}

// The flag by which a connect doesn't wait belongs to the command too. A server whose descriptor is on its way to nobody stays.
func TestACommandThatMakesItsConnectWaitHoldsNothingUpInEveryWay(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		out, _ := python(t, &sockets.Network{Connections: allow1()}, `
import fcntl
os.chdir(sys.argv[1]); U = socket.AF_UNIX
for name in ("to", "busy"): code(os.unlink, name)
to = socket.socket(U, 2); to.bind("to"); by = socket.socket(U, 2); by.connect("to")
l = socket.socket(U); l.bind("busy"); l.listen(0); first = socket.socket(U); first.connect("busy")
socket.send_fds(by, [b"x"], [l.fileno()]); l.close()
c = socket.socket(U)
def unflag():
    while True: fcntl.fcntl(c.fileno(), fcntl.F_SETFL, 0)
def connect():
    while True: libc.connect(c.fileno(), struct.pack("=H", 1) + b"busy\0", 7)
for f in (unflag, unflag, connect): threading.Thread(target=f, daemon=True).start()
time.sleep(1); print("tried", flush=True); os._exit(0)
`, publicDir(t))
		if out != "tried\n" {
			t.Errorf("got %q", out)
		}
	})
}

// Whoever waits for a busy server takes no descriptor of this process but the one that holds the socket.
func TestThreadsThatWaitForABusyServerTakeFewDescriptorsInEveryWay(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		const waiting = 60
		before, most := descriptors(t), 0
		ended, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			for {
				select {
				case <-ended:
					return
				case <-time.After(5 * time.Millisecond):
					most = max(most, descriptors(t)-before)
				}
			}
		}()
		out, _ := python(t, &sockets.Network{Connections: allow1()}, `
U = socket.AF_UNIX; name = "\0busy%d" % os.getpid(); got = []
l = socket.socket(U); l.bind(name); l.listen(0); first = socket.socket(U); first.connect(name)
def wait():
    s = socket.socket(U); s.setsockopt(socket.SOL_SOCKET, 21, struct.pack("qq", 1, 0)); got.append(code(s.connect, name))
ts = [threading.Thread(target=wait) for _ in range(port(1))]
for t in ts: t.start()
for t in ts: t.join()
print(len(got), set(got))
`, strconv.Itoa(waiting))
		close(ended)
		<-watched
		if out != "60 {'EAGAIN'}\n" || most >= waiting+40 {
			t.Errorf("%d descriptors, got %s", most, out)
		}
	})
}
