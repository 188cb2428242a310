package sockets

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// nobody is a listener whose calls don't wait any more, as those of threads that were interrupted.
const nobody = kernel.Listener(-1)

// newTestGate returns a gate and a socket of it that connects to a server whose queue is full: who connects waits.
func newTestGate(t *testing.T) (*Gate, *socket, *address) {
	t.Helper()
	g, err := New(&Network{}, nobody, true)
	if err != nil {
		t.Fatal(err)
	}
	server := newTestSocket(t, g)
	if err := unix.Bind(server.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(server.fd, 0); err != nil {
		t.Fatal(err)
	}
	to := make([]byte, leastIPv4)
	binary.NativeEndian.PutUint16(to, unix.AF_INET)
	copy(to[offAddress4:], []byte{127, 0, 0, 1})
	binary.BigEndian.PutUint16(to[offPort:], localAddress(server.fd).Port())
	for range 2 {
		if _, errno := connectNow(newTestSocket(t, g).fd, to); errno != unix.EINPROGRESS && errno != 0 {
			t.Fatal(errno)
		}
	}
	a, errno := parseAddress(to)
	if errno != 0 {
		t.Fatal(errno)
	}
	return g, newTestSocket(t, g), &a
}

func newTestSocket(t *testing.T, g *Gate) *socket {
	t.Helper()
	s, err := g.newSocket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A thread that a signal interrupts again and again in a connect leaves a timer each time, if nothing stops that.
func TestThreadsThatWereInterruptedInConnectLeaveNothing(t *testing.T) {
	for name, end := range map[string]func(g *Gate, s *socket){
		"the gate is closed":        func(g *Gate, _ *socket) { g.Close() },
		"the connection stands":     func(g *Gate, s *socket) { g.succeed(s); g.Close() },
		"the connection fails":      func(g *Gate, s *socket) { g.tellWaiters(s, unix.ECONNREFUSED); g.Close() },
		"the socket was closed":     func(g *Gate, s *socket) { g.drop(s); g.Close() },
		"another thread undoes it":  func(g *Gate, s *socket) { g.settle(s, 0, &address{family: unix.AF_UNSPEC}, true, 0); g.Close() },
		"another thread ends it":    func(g *Gate, s *socket) { g.settle(s, 0, &address{family: unix.AF_INET}, true, 0); g.Close() },
		"somebody looks after them": func(g *Gate, s *socket) { g.waiting(s); g.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g, s, to := newTestGate(t)
			if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1 << 30}); err != nil {
				t.Fatal(err)
			}
			var timers []*time.Timer
			for id := range uint64(1000) {
				g.connect(id, s.inode, to)
				if len(s.waiters) != 1 || s.waiters[0].id != id {
					t.Fatalf("after number %d there wait %+v", id, s.waiters)
				}
				timers = append(timers, s.waiters[0].timer)
			}
			end(g, s)
			running := 0
			for _, timer := range timers {
				if timer.Stop() {
					running++
				}
			}
			if len(s.waiters) > 0 || running > 0 {
				t.Errorf("%d waiters and %d timers are left", len(s.waiters), running)
			}
		})
	}
}

func TestAThreadWaitsForItsLimitOfTime(t *testing.T) {
	g, s, to := newTestGate(t)
	defer g.Close()
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
		t.Fatal(err)
	}
	g.connect(1, s.inode, to)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		left := len(s.waiters)
		g.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it waits on")
		}
	}
	if g.find(s.inode) != s {
		t.Error("the socket was given up")
	}
}
