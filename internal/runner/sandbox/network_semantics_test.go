package sandbox

import (
	"os/exec"
	"slices"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// Each program gets the port of a server, and one where nothing listens. What it prints with everything let through must
// be what it prints without a gate.
var semantics = map[string]string{
	"a blocking connect": `
s = socket.socket(); print(code(s.connect, (A, P)), s.recv(10), s.getpeername()[1] == P, code(s.connect, (A, P)))
s.shutdown(socket.SHUT_WR); print(s.recv(10)); s.close()`,
	"a connect that doesn't block": `
s = socket.socket(); s.setblocking(False)
print(errno.errorcode[s.connect_ex((A, P))])
print(select.select([], [s], [], 5)[1] == [s], s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), s.connect_ex((A, P)), errno.errorcode[s.connect_ex((A, P))])
print(select.select([s], [], [], 5)[0] == [s], s.recv(10))`,
	"a refusal that is asked for, and another try": `
s = socket.socket(); s.setblocking(False)
print(errno.errorcode[s.connect_ex((A, C))]); p = select.poll(); p.register(s, select.POLLOUT); print(p.poll(5000)[0][1])
print(errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)], s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
e = s.connect_ex((A, P)); print(errno.errorcode[e])
if e == errno.ECONNABORTED: print(errno.errorcode[s.connect_ex((A, P))])
print(p.poll(5000)[0][1], s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))`,
	"a refusal that connect reports": `
s = socket.socket(); s.setblocking(False)
print(errno.errorcode[s.connect_ex((A, C))]); select.select([], [s], [], 5)
print(errno.errorcode[s.connect_ex((A, P))], errno.errorcode[s.connect_ex((A, P))])
select.select([], [s], [], 5); s.setblocking(True); print(s.recv(10))`,
	"a blocking refusal, and another try": `
s = socket.socket()
for q in (C, C, P): print(code(s.connect, (A, q)))
print(s.recv(10))`,
	"options": `
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 9000)
s.bind((A, 0)); own = s.getsockname()
print(code(s.connect, (A, P)), s.getsockname() == own, s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))`,
	"a device": `
s = socket.socket(); print(code(s.setsockopt, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")); print(code(s.connect, (A, P)), s.recv(10))`,
	"epoll before connect": `
s = socket.socket(); s.setblocking(False); e = select.epoll(); e.register(s, select.EPOLLOUT | select.EPOLLIN | select.EPOLLET)
print(e.poll(0.2) == [(s.fileno(), select.EPOLLOUT | select.EPOLLHUP)]); s.connect_ex((A, P))
seen = 0
while seen & 5 != 5: seen |= e.poll(5)[0][1]
print(seen, s.recv(10))`,
	"a copied descriptor": `
s = socket.socket(); d = s.dup(); d.connect((A, P)); print(s.recv(10), d.fileno() != s.fileno()); os.dup2(s.fileno(), 77); print(socket.socket(fileno=77).getpeername()[1] == P)`,
	"a child that connects": `
s = socket.socket()
if os.fork() == 0: s.connect((A, P)); os._exit(0)
os.wait(); print(s.recv(10), code(s.connect, (A, P)))`,
	"a program that inherits": `
import subprocess
s = socket.socket(); s.set_inheritable(True)
print(subprocess.run([sys.executable, "-c", "import socket; s = socket.socket(fileno=%d); s.connect(('%s', %d)); print(s.recv(10))" % (s.fileno(), A, P)], close_fds=False, capture_output=True).stdout)
print(subprocess.run(["/bin/bash", "-c", "exec 3<>/dev/tcp/%s/%d; read x <&3; echo $x" % (A, P)], capture_output=True).stdout, s.getpeername()[1] == P)`,
	"a descriptor that is passed": `
a, b = socket.socketpair()
s = socket.socket()
if os.fork() == 0: socket.send_fds(a, [b"x"], [s.fileno()]); s.close(); os._exit(0)
s.close(); os.wait(); _, fds, _, _ = socket.recv_fds(b, 1, 1); s = socket.socket(fileno=fds[0]); print(code(s.connect, (A, P)), s.recv(10))`,
	"a child that shares descriptors": `
r, w = os.pipe(); number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
pid = libc.syscall(number, 0x400 | signal.SIGCHLD, 0, 0, 0, 0) # CLONE_FILES
if pid == 0: s = socket.socket(); s.connect((A, P)); os.write(w, b"%d" % s.detach()); os._exit(0)
os.waitpid(pid, 0); print(socket.socket(fileno=int(os.read(r, 10))).recv(10))`,
	"a hundred at once": `
import asyncio
async def one():
    r, w = await asyncio.open_connection(A, P); line = await r.readline(); w.close(); await w.wait_closed(); return line
async def main(): return await asyncio.gather(*[one() for _ in range(100)])
print(set(asyncio.run(main())))`,
	"threads": `
def one():
    for _ in range(20): s = socket.create_connection((A, P)); got.append(s.recv(10)); s.close()
got = []; threads = [threading.Thread(target=one) for _ in range(10)]
for t in threads: t.start()
for t in threads: t.join()
print(len(got), set(got))`,
	"flags": `
import fcntl
for f in (0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC):
    for k in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        fd = libc.socket(2, k | f, 0); print(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK, fcntl.fcntl(fd, fcntl.F_GETFD))
s = socket.socket(); s.connect((A, P)); print(fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK)`,
	"bad arguments": `
addr = ctypes.create_string_buffer(struct.pack("=HH4s8x", 2, socket.htons(P), socket.inet_aton(A)) + bytes(112))
def c(fd, a, n): r = libc.connect(fd, a, n); return r and errno.errorcode[ctypes.get_errno()]
s = socket.socket(); s6 = socket.socket(socket.AF_INET6); u = socket.socket(type=socket.SOCK_DGRAM)
print(c(999, addr, 16), c(0, addr, 16), c(-1, addr, 16), c(s.fileno(), addr, 15), c(s.fileno(), addr, 1), c(s.fileno(), addr, -1), c(s.fileno(), addr, 129), c(s.fileno(), 8, 16))
print(c(s6.fileno(), addr, 16), c(s6.fileno(), addr, 28), c(u.fileno(), addr, 15), c(s.fileno(), addr, 128), c(s.fileno(), addr, 0), c(u.fileno(), addr, 0))
addr6 = ctypes.create_string_buffer(struct.pack("=HHI16sI", 10, socket.htons(P), 0, socket.inet_pton(10, "::1"), 0))
print(c(socket.socket().fileno(), addr6, 28), c(s6.fileno(), addr6, 23))
print([code(socket.socket, 2, 1, p) for p in (132, 255, 17)], [code(socket.socket, f) for f in (0, 12, 99)], code(socket.socket, 16, 3, 21))`,
	"servers": `
l = socket.create_server((A, 0)); q = l.getsockname()[1]
c = socket.create_connection((A, q)); a, _ = l.accept(); a.sendall(b"x"); print(c.recv(1), code(l.connect, (A, P)), code(a.connect, (A, P)))
for x in (c, a, l): x.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); x.close()
closed = set()
for _ in range(400): l = socket.socket(); closed.add((code(l.bind, (A, q)), code(l.listen, 5))); l.close()
print(closed)
l = socket.socket(); print(code(l.bind, (A, q)), code(l.listen)); m = socket.socket(); print(code(m.bind, (A, q)))
print(libc.listen(0, 1), libc.listen(socket.socket(type=socket.SOCK_DGRAM).fileno(), 1), libc.listen(999, 1))
n = socket.socket(); print(code(n.listen, -1), n.getsockname()[1] > 0)`,
	"a free port": `
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    free = []
    for _ in range(6):
        s = socket.socket(type=kind); s.bind((A, 0)); q = s.getsockname()[1]; s.close()
        s = socket.socket(type=kind); free.append(code(s.bind, (A, q)) is None); o = socket.socket(type=kind)
        print(code(o.bind, (A, q)) if free[-1] else "EADDRINUSE")
    print(sum(free) > 3) # another program may take one meanwhile`,
	"Unix sockets and netlink": `
os.chdir(sys.argv[3]); l = socket.socket(socket.AF_UNIX); l.bind("s"); l.listen(); c = socket.socket(socket.AF_UNIX); print(code(c.connect, "s"), code(c.connect, "none"), code(socket.socket(socket.AF_UNIX).connect, "none"))
d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); d.bind("d"); e = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); print(code(e.sendto, b"xy", "d"), d.recv(3), code(e.sendto, b"x", "none"))
print(len(socket.if_nameindex()) > 0, socket.getaddrinfo("127.0.0.1", 80)[0][4], code(socket.socketpair) is not None)
n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print(code(n.bind, (0, 0)), code(n.connect, (0, 0)), code(n.sendto, bytes(16), (0, 0)))`,
	"limits": `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)); all = []
try:
    while True: all.append(socket.socket())
except OSError as e: print(errno.errorcode[e.errno], len(all) > 5)`,
	"UDP without sending": `
s = socket.socket(type=socket.SOCK_DGRAM); s.bind(("", 0)); print(s.getsockname()[0], code(s.connect, (A, P)), s.getsockname()[0], s.getpeername()[1] == P)
addr = ctypes.create_string_buffer(16); print(libc.connect(s.fileno(), addr, 16), s.getsockname()[0], code(s.getpeername))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); print(code(s.connect, ("::ffff:" + A, P)), s.getsockname()[0]); print(select.select([], [s], [], 5)[1] == [s])`,
	"IPv6": `
l = socket.create_server(("::1", 0), family=socket.AF_INET6); q = l.getsockname()[1]
s = socket.socket(socket.AF_INET6); print(code(s.connect, ("::1", q)), s.getpeername()[0])
s = socket.socket(socket.AF_INET6); print(code(s.connect, ("::ffff:" + A, P)), s.recv(10), s.getpeername()[0])
s = socket.socket(socket.AF_INET6); print(code(s.connect, ("::", q)), s.getpeername()[0])
s = socket.socket(); print(code(s.connect, ("0.0.0.0", P)), s.getpeername()[0])`,
	"the end of a connection": `
l = socket.create_server((A, 0)); s = socket.socket(); s.setblocking(False); s.connect_ex(l.getsockname()); a, _ = l.accept(); select.select([], [s], [], 5); s.close()
a.settimeout(5); print(a.recv(1))
s = socket.create_connection(l.getsockname()); a, _ = l.accept(); s.close(); a.settimeout(5); print(a.recv(1))`,
	"signals and limits in connect": full + `
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200000)); print(code(s.connect, F), s.gettimeout())
s = socket.socket(); s.settimeout(0.2)
try: s.connect(F)
except TimeoutError as e: print(repr(e))
signal.signal(signal.SIGALRM, lambda *a: None); signal.siginterrupt(signal.SIGALRM, True); signal.setitimer(signal.ITIMER_REAL, 0.2)
s = socket.socket(); addr = struct.pack("=HH4s8x", 2, socket.htons(F[1]), socket.inet_aton(F[0])); print(libc.connect(s.fileno(), addr, 16), errno.errorcode[ctypes.get_errno()])
signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2); threading.Timer(0.7, drain).start()
s = socket.socket(); print(libc.connect(s.fileno(), addr, 16), s.getpeername()[1] == F[1]); signal.setitimer(signal.ITIMER_REAL, 0)`,
	// Handlers that restart what they interrupt, as those of profilers do, and as often. Now and then a signal comes just as an answer
	// is sent, and the kernel drops that: the more signals, the more often.
	"a timer that fires again and again": `
fired = []; signal.signal(signal.SIGALRM, lambda *a: fired.append(1)); signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
got = set(); n = 0
while n < 500 or len(fired) <= 5: got.add(socket.create_connection((A, P)).recv(10)); n += 1
signal.setitimer(signal.ITIMER_REAL, 0); print(got)`,
	"a connect that was interrupted, and then failed": full + `
signal.signal(signal.SIGALRM, lambda *a: None); signal.siginterrupt(signal.SIGALRM, True); signal.setitimer(signal.ITIMER_REAL, 0.2)
s = socket.socket(); addr = struct.pack("=HH4s8x", 2, socket.htons(F[1]), socket.inet_aton(F[0])); print(libc.connect(s.fileno(), addr, 16), errno.errorcode[ctypes.get_errno()])
L.close(); print(select.select([], [s], [], 10)[1] == [s], errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])`,
	"a connect that another thread undoes": full + `
s = socket.socket(); got = []; addr = struct.pack("=HH4s8x", 2, socket.htons(F[1]), socket.inet_aton(F[0]))
t = threading.Thread(target=lambda: got.append((libc.connect(s.fileno(), addr, 16), ctypes.get_errno() != 0)), daemon=True); t.start()
time.sleep(0.3); print(libc.connect(s.fileno(), bytes(16), 16)); t.join(10); print(got, code(s.getpeername), code(s.connect, (A, P))); sys.stdout.flush(); os._exit(0)`,
	// So many sockets later somebody looks for those that nobody has.
	"a connect whose socket another thread closes": full + `
fd = socket.socket().detach(); got = []; addr = struct.pack("=HH4s8x", 2, socket.htons(F[1]), socket.inet_aton(F[0]))
t = threading.Thread(target=lambda: got.append(libc.connect(fd, addr, 16)), daemon=True); t.start()
time.sleep(0.3); os.close(fd); others = [socket.socket() for _ in range(200)]; drain(); t.join(20); print(got); sys.stdout.flush(); os._exit(0)`,
	"two threads that wait for one socket": full + `
s = socket.socket(); got = []; addr = struct.pack("=HH4s8x", 2, socket.htons(F[1]), socket.inet_aton(F[0]))
ts = [threading.Thread(target=lambda: got.append(libc.connect(s.fileno(), addr, 16))) for _ in range(2)]
for t in ts: t.start()
for t in ts: connects(t)
time.sleep(1) # one that is late finds a connected socket, which is an error
print(got); drain()
for t in ts: t.join()
print(got)`,
	"waiting holds up nobody": full + `
for _ in range(20):
    t = threading.Thread(target=lambda: code(socket.socket().connect, F), daemon=True); t.start(); connects(t)
s = socket.create_connection((A, P)); print(s.recv(10)); sys.stdout.flush(); os._exit(0)`,
}

// full has a server whose queue is full: who connects waits, until drain takes what is in the queue.
const full = `
L = socket.socket(); L.bind(("127.0.0.1", 0)); L.listen(0); F = L.getsockname(); fill = []
for _ in range(2):
    x = socket.socket(); x.settimeout(0.3); code(x.connect, F); fill.append(x)
L.settimeout(5); taken = []
def connects(t): # until a thread is in connect
    while open("/proc/self/task/%d/syscall" % t.native_id).read().split()[0] != {"x86_64": "42", "aarch64": "203"}[os.uname().machine]: os.sched_yield()
def drain():
    for x in fill: x.close()
    for _ in range(3):
        try: taken.append(L.accept())
        except OSError: return
`

func TestSocketsBehaveAsTheKernels(t *testing.T) {
	python3 := programPath(t, "python3")
	for _, name := range sorted(semantics) {
		t.Run(name, func(t *testing.T) {
			s, closed := serve(t, "127.0.0.1:0"), closedPort(t)
			source := pythonPrelude + "A = \"127.0.0.1\"; P = port(1); C = port(2)\n" + semantics[name]
			argv := []string{python3, "-c", source, s.port(), closed, publicDir(t)}
			plain, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
			if err != nil {
				t.Fatalf("without a gate: %v: %s", err, plain)
			}
			argv[5] = publicDir(t)
			gated, o := (&command{network: &sockets.Network{Connections: &decider{all: true}}, argv: argv}).run(t)
			if gated != string(plain) || o.Reason != result.Completed || len(o.Denied) > 0 {
				t.Errorf("without a gate:\n%swith it:\n%s%s %+v", plain, gated, o.Reason, o.Denied)
			}
		})
	}
}

func sorted(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// closedPort is one where nothing listens. The socket keeps others from it.
func closedPort(t *testing.T) string {
	t.Helper()
	s := serve(t, "127.0.0.1:0")
	port := s.port()
	s.Close()
	return port
}
