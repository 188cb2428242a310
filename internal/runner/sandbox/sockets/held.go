package sockets

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

const (
	// maxHeld is how many sockets of one call can be neither connected nor listening at a time.
	maxHeld = 1024
	// heldShare is the part of this process's descriptors that they may take.
	heldShare = 2
	// minSweep is how many sockets are held before the first sweep, and between two.
	minSweep = 64
	// maxConnected is how many given-up sockets are remembered.
	maxConnected = 64
)

// heldSockets are those of a call's sockets that aren't connected and don't listen.
type heldSockets struct {
	listener kernel.Listener

	mu sync.Mutex
	// sockets are by their inodes.
	sockets map[uint64]*socket
	// connected are inodes of sockets given up whose command wasn't told yet that they are connected.
	connected []uint64
	// sweeping is held during a sweep. Two at once would leave a socket that is passed between processes no time to be seen.
	sweeping sync.Mutex
	// sweepAt is the number of held sockets at which the next sweep is due.
	sweepAt int
	// ready is an epoll instance with the sockets that connect.
	ready int
	// closed says that the sockets were given up: what still connects one keeps nothing.
	closed bool
}

func newHeldSockets(l kernel.Listener) (*heldSockets, error) {
	ready, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &heldSockets{listener: l, sockets: map[uint64]*socket{}, sweepAt: minSweep, ready: ready}, nil
}

// find returns a socket if it is held, and nil otherwise. Only what it is may be looked at: it may be given up at any time.
func (h *heldSockets) find(inode uint64) *socket {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sockets[inode]
}

// makeRoom sweeps when that is due, and fails when the command has too many sockets.
func (h *heldSockets) makeRoom() error {
	limit := maxHeld
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err == nil {
		limit = int(min(maxHeld, own.Cur/heldShare))
	}
	if !h.isSweepDue(limit) { // most sockets wait for no sweep that goes on
		return nil
	}
	h.sweeping.Lock()
	defer h.sweeping.Unlock()
	for range 3 { // the second sweep drops what the first one suspects
		if !h.isSweepDue(limit) {
			return nil
		}
		h.sweep()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sockets) >= limit {
		return unix.ENFILE
	}
	return nil
}

// isSweepDue reports whether so many sockets are held that there is to be a sweep before the next one.
func (h *heldSockets) isSweepDue(limit int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sockets) >= min(h.sweepAt, limit)
}

// sweep drops the sockets that no process has held for two sweeps.
func (h *heldSockets) sweep() {
	candidates := h.candidates((*socket).isGiven)
	used := socketsInUse()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range candidates {
		switch {
		case used[s.inode]:
			s.suspect = false
		case s.suspect:
			h.drop(s)
		default:
			s.suspect = true
		}
	}
	h.sweepAt = len(h.sockets) + minSweep
}

// candidates are the sockets that satisfy a condition, without those that a thread connects: it holds its socket also when another
// thread has closed the descriptor.
func (h *heldSockets) candidates(condition func(*socket) bool) []*socket {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*socket
	for _, s := range h.sockets {
		if len(h.waiting(s)) == 0 && condition(s) {
			found = append(found, s)
		}
	}
	return found
}

// waiting are the threads that wait for a socket, without those that were interrupted.
func (h *heldSockets) waiting(s *socket) []waiter {
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
		isGone := !h.listener.IsValid(w.id)
		if isGone {
			w.stopTimer()
		}
		return isGone
	})
	return s.waiters
}

// releasePort drops the sockets at a port that no process holds, so that the port can be bound again. A socket that has
// a port has been given, even if it isn't marked yet.
func (h *heldSockets) releasePort(port uint16, except uint64) {
	h.release(func(s *socket) bool { return s.inode != except && localAddress(s.fd).Port() == port })
}

// releaseName drops the Unix sockets with a name that no process holds, so that the name can be bound again.
func (h *heldSockets) releaseName(raw []byte, except uint64) {
	if len(raw) <= leastAddress || isPathName(raw) {
		return // the kernel keeps a path until somebody removes it
	}
	h.release(func(s *socket) bool {
		return s.isLocal && s.inode != except && bytes.Equal(localName(s.fd), raw[leastAddress:])
	})
}

// release drops the sockets that satisfy a condition and that no process holds.
func (h *heldSockets) release(condition func(*socket) bool) {
	bound := h.candidates(condition)
	if len(bound) == 0 {
		return
	}
	used := socketsInUse()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range bound {
		if !used[s.inode] {
			h.drop(s)
		}
	}
}

// drop gives up a socket. The caller holds the lock.
func (h *heldSockets) drop(s *socket) {
	if h.sockets[s.inode] != s {
		return
	}
	if s.watched {
		// The command's descriptor would keep it watched.
		_ = unix.EpollCtl(h.ready, unix.EPOLL_CTL_DEL, s.fd, nil)
	}
	s.takeWaiters()
	unix.Close(s.fd)
	delete(h.sockets, s.inode)
}

// duplicate opens another descriptor of a socket, if that is still held.
func (h *heldSockets) duplicate(s *socket) (int, unix.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sockets[s.inode] != s {
		return -1, unix.EBADF
	}
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	return fd, kernel.ErrnoOf(err, 0)
}

// rememberConnected notes that a socket was given up before its command learned that it is connected.
func (h *heldSockets) rememberConnected(inode uint64) {
	if len(h.connected) == maxConnected {
		h.connected = h.connected[1:]
	}
	h.connected = append(h.connected, inode)
}

// takeConnected reports whether the command is still to be told that a socket is connected, and forgets it.
func (h *heldSockets) takeConnected(inode uint64) bool {
	i := slices.Index(h.connected, inode)
	if i < 0 {
		return false
	}
	h.connected = slices.Delete(h.connected, i, i+1)
	return true
}

// Close gives up all sockets. Nothing may be asked any more.
func (h *heldSockets) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, s := range h.sockets {
		h.drop(s)
	}
	unix.Close(h.ready)
}

// socketsInUse are the inodes of the sockets that processes hold which this one may look at, without itself.
func socketsInUse() map[uint64]bool {
	used := map[uint64]bool{}
	for _, pid := range proc.Numbers("/proc") {
		dir := "/proc/" + strconv.Itoa(pid)
		if pid == os.Getpid() || addSockets(used, dir+"/fd") {
			continue
		}
		// The first thread may have ended before the others.
		for _, tid := range proc.Numbers(dir + "/task") {
			addSockets(used, dir+"/task/"+strconv.Itoa(tid)+"/fd")
		}
	}
	return used
}

// addSockets adds the sockets of a directory of descriptors, and reports false for an empty one.
func addSockets(to map[uint64]bool, dir string) bool {
	fds := proc.Numbers(dir)
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
