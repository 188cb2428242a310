package sandbox

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// socket is one that a command has, held open.
type socket struct {
	fd    int
	inode uint64
	isUDP bool
	// isLocal says that it is a Unix socket, isDatagram that it sends datagrams.
	isLocal, isDatagram bool
	// given says that the command has its descriptor: before that nobody does.
	given bool
	// suspect says that no process held it at the last sweep. It may have been on its way through a Unix socket.
	suspect bool
	// to is where it connects, waiters are the threads that wait for that, watched says that ready reports it.
	to      []byte
	waiters []waiter
	watched bool
	// connecting says that a Unix socket is being connected.
	connecting bool
	// peer is what a Unix socket waits to be connected to, held open.
	peer int
}

// handleSocket makes a socket for the command.
func (n *network) handleSocket(c *notification) {
	family, kind, protocol := int(int32(c.args[0])), int(int32(c.args[1])), int(int32(c.args[2]))
	s, err := n.newSocket(family, kind, protocol)
	if err != nil {
		n.answer(c.id, errnoOf(err, unix.ENOBUFS))
		return
	}
	errno := n.listener.give(c.id, s.fd, kind&unix.SOCK_CLOEXEC != 0)
	n.mu.Lock()
	defer n.mu.Unlock()
	if errno != 0 {
		n.drop(s)
		n.answer(c.id, errno)
		return
	}
	s.given = true
	if soon := time.Now().Add(soonSweep); n.nextSweep.IsZero() || n.nextSweep.After(soon) {
		n.nextSweep, n.sweepEvery = soon, soonSweep
		n.setTimer()
	}
}

// newSocket makes a socket and holds it.
func (n *network) newSocket(family, kind, protocol int) (*socket, error) {
	if err := n.makeRoom(); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if errors.Is(err, unix.EMFILE) {
		err = unix.ENFILE // the limit isn't the command's
	}
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd, isLocal: family == unix.AF_UNIX, isDatagram: !isStream(kind), peer: noPeer}
	s.isUDP = s.isDatagram && !s.isLocal
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && s.isUDP && !n.UDP {
		err = shutSending(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s.inode = st.Ino
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sockets[s.inode] = s
	n.takeConnected(s.inode)
	return s, nil
}

// isStream reports whether sockets of a type connect once. A raw Unix socket is one for datagrams.
func isStream(kind int) bool {
	kind &= socketTypeMask
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

// socketInode returns the inode of a thread's descriptor, which must be a socket.
func (t target) socketInode(fd int32) (uint64, unix.Errno) {
	var st unix.Stat_t
	err := unix.Stat(t.proc("fd/"+strconv.Itoa(int(fd))), &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, unix.EBADF
	case err != nil:
		return 0, unix.EACCES
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return 0, unix.ENOTSOCK
	default:
		return st.Ino, 0
	}
}

// socketProtocol returns the kernel's name for the protocol of a thread's descriptor.
func (t target) socketProtocol(fd int32) string {
	name := make([]byte, maxName)
	n, err := unix.Getxattr(t.proc("fd/"+strconv.Itoa(int(fd))), "system.sockprotoname", name)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(name[:n]), "\x00")
}

// isUnixProtocol names Unix sockets. Before Linux 5.15 they all have one name.
func isUnixProtocol(name string) bool { return name == "UNIX" || name == "UNIX-STREAM" }

func isTCP(name string) bool { return name == "TCP" || name == "TCPv6" }

// isLocalProtocol says that sockets of a protocol reach no network. A descriptor of another socket that is put in such a
// one's place after the look is stopped by Landlock for TCP and can't send for UDP. Where Landlock can't, the kernel connects none.
func isLocalProtocol(name string) bool {
	return isUnixProtocol(name) || name == "NETLINK"
}
