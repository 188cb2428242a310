package sockets

import (
	"errors"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// socket is one that a command has, held open.
type socket struct {
	fd    int
	inode uint64
	isUDP bool
	// isLocal says that it is a Unix socket, isDatagram that it sends datagrams.
	isLocal, isDatagram bool
	// given is closed when the kernel has given the command its descriptor, or has failed to: before that the kernel keeps the socket.
	given chan struct{}
	// suspect says that no process held it at the last sweep. It may have been on its way through a Unix socket.
	suspect bool
	// to is where it connects, waiters are the threads that wait for that, watched says that ready reports it.
	to      []byte
	waiters []waiter
	watched bool
	// connecting says that a Unix socket is being connected.
	connecting bool
}

// takeWaiters returns the threads that wait, which wait for nothing any more.
func (s *socket) takeWaiters() []waiter {
	waiters := s.waiters
	s.waiters = nil
	for _, w := range waiters {
		w.stopTimer()
	}
	return waiters
}

// handleSocket makes a socket for the command.
func (g *Gate) handleSocket(c *kernel.Notification) {
	family, kind, protocol := c.Int(0), c.Int(1), c.Int(2)
	s, err := g.newSocket(family, kind, protocol)
	if err != nil {
		g.answer(c.ID, kernel.ErrnoOf(err, unix.ENOBUFS))
		return
	}
	errno := g.listener.Give(c.ID, s.fd, kind&unix.SOCK_CLOEXEC != 0)
	g.mu.Lock()
	defer g.mu.Unlock()
	close(s.given)
	if errno != 0 {
		g.drop(s)
		g.answer(c.ID, errno)
	}
}

// isGiven reports whether the command has got its descriptor.
func (s *socket) isGiven() bool {
	select {
	case <-s.given:
		return true
	default:
		return false
	}
}

// newSocket makes a socket and holds it.
func (g *Gate) newSocket(family, kind, protocol int) (*socket, error) {
	if err := g.makeRoom(); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if errors.Is(err, unix.EMFILE) {
		err = unix.ENFILE // the limit isn't the command's
	}
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd, given: make(chan struct{}), isLocal: family == unix.AF_UNIX, isDatagram: !isStream(kind)}
	s.isUDP = s.isDatagram && !s.isLocal
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && s.isUDP && !g.UDP {
		err = shutSending(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s.inode = st.Ino
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sockets[s.inode] = s
	g.takeConnected(s.inode)
	return s, nil
}

// isStream reports whether sockets of a type connect once. A raw Unix socket is one for datagrams.
func isStream(kind int) bool {
	kind &^= unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	return kind == unix.SOCK_STREAM || kind == unix.SOCK_SEQPACKET
}

// shutSending keeps a UDP socket from ever sending: the kernel looks at the mark when it makes a datagram's first buffer,
// whatever the call was, and nothing takes the mark away. It sets it also on a socket that isn't connected, and says
// that it isn't.
func shutSending(fd int) error {
	if !shutSocketsAreSilent() {
		return unix.EACCES
	}
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil && !errors.Is(err, unix.ENOTCONN) {
		return err
	}
	return nil
}

// shutSocketsAreSilent tries out whether a UDP socket that was shut can send. A kernel of another make may let it.
var shutSocketsAreSilent = sync.OnceValue(func() bool {
	families := 0
	for _, loopback := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		family := unix.AF_INET6
		if loopback.Is4() {
			family = unix.AF_INET
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		// To itself: nobody is bothered if it arrives.
		if err = unix.Bind(fd, encodeAddress(netip.AddrPortFrom(loopback, 0))); err == nil {
			err = unix.Sendto(fd, nil, unix.MSG_DONTWAIT, encodeAddress(localAddress(fd)))
			families++
		}
		unix.Close(fd)
		if err == nil {
			return false
		}
	}
	return families > 0
})

// isUnixProtocol names Unix sockets. Before Linux 5.15 they all have one name.
func isUnixProtocol(name string) bool { return name == "UNIX" || name == "UNIX-STREAM" }

func isTCP(name string) bool { return name == "TCP" || name == "TCPv6" }

// isLocalProtocol says that sockets of a protocol reach no network. A descriptor of another socket that is put in such a
// one's place after the look is stopped by Landlock for TCP and can't send for UDP. Where Landlock can't, the kernel connects none.
func isLocalProtocol(name string) bool {
	return isUnixProtocol(name) || name == "NETLINK"
}
