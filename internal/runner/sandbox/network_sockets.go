package sandbox

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxHeld is how many sockets of one call can be neither connected nor listening at a time.
	maxHeld = 1024
	// heldShare is the part of this process's descriptors that they may take.
	heldShare = 2
	// minSweep is how many sockets are held before the first sweep, and between two.
	minSweep = 64
	// soonSweep is how long a socket is held at most before the next sweep, lateSweep the time between two that drop
	// nothing: what a command closes may hold a port that a process outside the call waits for.
	soonSweep = time.Second
	lateSweep = time.Minute
	// maxConnected is how many given-up sockets are remembered.
	maxConnected = 64
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
	n.held[s.inode] = s
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

// makeRoom sweeps when that is due, and fails when the command has too many sockets.
func (n *network) makeRoom() error {
	limit := maxHeld
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err == nil {
		limit = int(min(maxHeld, own.Cur/heldShare))
	}
	n.sweeping.Lock()
	defer n.sweeping.Unlock()
	for range 3 { // the second sweep drops what the first one suspects
		n.mu.Lock()
		held, due := len(n.held), n.sweepAt
		n.mu.Unlock()
		if held < min(due, limit) {
			return nil
		}
		n.sweep()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.held) >= limit {
		return unix.ENFILE
	}
	return nil
}

// sweep drops the sockets that no process has held for two sweeps.
func (n *network) sweep() {
	candidates := n.candidates(func(s *socket) bool { return s.given })
	used := socketsInUse()
	n.mu.Lock()
	defer n.mu.Unlock()
	every := min(2*n.sweepEvery, lateSweep)
	for _, s := range candidates {
		switch {
		case used[s.inode]:
			s.suspect = false
		case s.suspect:
			n.drop(s)
		default:
			s.suspect = true
			every = soonSweep
		}
	}
	n.sweepAt = len(n.held) + minSweep
	n.nextSweep, n.sweepEvery = time.Time{}, every
	if len(n.held) > 0 {
		n.nextSweep = time.Now().Add(every)
	}
	n.setTimer()
}

// candidates are the sockets that satisfy a condition.
func (n *network) candidates(condition func(*socket) bool) []*socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*socket
	for _, s := range n.held {
		if condition(s) {
			found = append(found, s)
		}
	}
	return found
}

// releasePort drops the sockets at a port that no process holds, so that the port can be bound again. A socket that has
// a port has been given, even if it isn't marked yet.
func (n *network) releasePort(port uint16, except uint64) {
	n.release(func(s *socket) bool { return s.inode != except && localAddress(s.fd).Port() == port })
}

// release drops the sockets that satisfy a condition and that no process holds.
func (n *network) release(condition func(*socket) bool) {
	bound := n.candidates(condition)
	if len(bound) == 0 {
		return
	}
	used := socketsInUse()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range bound {
		if !used[s.inode] {
			n.drop(s)
		}
	}
}

// drop gives up a socket. The caller holds the lock.
func (n *network) drop(s *socket) {
	if n.held[s.inode] != s {
		return
	}
	if s.watched {
		// The command's descriptor would keep it watched.
		_ = unix.EpollCtl(n.ready, unix.EPOLL_CTL_DEL, s.fd, nil)
	}
	closePeer(s.peer)
	unix.Close(s.fd)
	delete(n.held, s.inode)
}

// rememberConnected notes that a socket was given up before its command learned that it is connected.
func (n *network) rememberConnected(inode uint64) {
	if len(n.connected) == maxConnected {
		n.connected = n.connected[1:]
	}
	n.connected = append(n.connected, inode)
}

// takeConnected reports whether the command is still to be told that a socket is connected, and forgets it.
func (n *network) takeConnected(inode uint64) bool {
	i := slices.Index(n.connected, inode)
	if i < 0 {
		return false
	}
	n.connected = slices.Delete(n.connected, i, i+1)
	return true
}

// socketsInUse are the inodes of the sockets that processes of this user hold, without this process.
func socketsInUse() map[uint64]bool {
	used := map[uint64]bool{}
	own, user := os.Getpid(), uint32(os.Geteuid())
	for _, pid := range numbersIn("/proc") {
		var st unix.Stat_t
		dir := "/proc/" + strconv.Itoa(pid)
		if pid == own || unix.Stat(dir, &st) != nil || st.Uid != user {
			continue
		}
		if addSockets(used, dir+"/fd") {
			continue
		}
		// The first thread may have ended before the others.
		for _, tid := range numbersIn(dir + "/task") {
			addSockets(used, dir+"/task/"+strconv.Itoa(tid)+"/fd")
		}
	}
	return used
}

// addSockets adds the sockets of a directory of descriptors, and reports false for an empty one.
func addSockets(to map[uint64]bool, dir string) bool {
	fds := numbersIn(dir)
	for _, fd := range fds {
		link, err := os.Readlink(dir + "/" + strconv.Itoa(fd))
		if err != nil {
			continue
		}
		text, isSocket := strings.CutPrefix(link, "socket:[")
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); isSocket && err == nil {
			to[inode] = true
		}
	}
	return len(fds) > 0
}

func numbersIn(dir string) []int {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if number, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

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
