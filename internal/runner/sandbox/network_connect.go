package sandbox

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// waiter is a thread that waits in connect.
type waiter struct {
	id uint64
	// deadline is when it stops to wait; zero for never.
	deadline time.Time
	// again says that it wants to wait for a busy server.
	again bool
}

// maxWaiters is how many threads wait for one socket before those that were interrupted are looked for.
const maxWaiters = 8

// maxReady is how many sockets are looked at together.
const maxReady = 16

// handleConnect decides about an address and connects the socket to it.
func (n *network) handleConnect(c *notification) {
	t, fd := target(c.pid), int32(c.args[0])
	inode, errno := t.socketInode(fd)
	var raw []byte
	if errno == 0 {
		raw, errno = t.address(c.args[1], int32(c.args[2]))
	}
	if errno != 0 {
		n.answer(c.id, errno)
		return
	}
	s := n.find(inode)
	switch {
	case s == nil:
		n.connectOther(c, t.socketProtocol(fd), inode, len(raw))
		return
	case s.isLocal:
		n.connectLocal(c, inode, raw)
		return
	}
	a, errno := parseAddress(raw)
	// What was read may be another process's if this one is gone.
	if !n.listener.isValid(c.id) {
		return
	}
	if errno == 0 && a.family != unix.AF_UNSPEC {
		errno = n.decide(&a, s.isUDP)
	}
	if errno != 0 {
		n.answer(c.id, errno)
		return
	}
	n.connect(c.id, inode, &a)
}

// decide asks whether a socket may be connected, and follows a redirection.
func (n *network) decide(a *address, isUDP bool) unix.Errno {
	p := TCP
	switch {
	case isUDP && n.UDP:
		p = UDP
	case isUDP:
		p = RouteLookup
	}
	v, errno := n.judge(a.to, p)
	if errno == 0 && v.Redirect.IsValid() {
		errno = a.redirect(v.Redirect)
	}
	return errno
}

// connectOther answers for a socket that isn't held. The kernel goes on with one that reaches no network only.
func (n *network) connectOther(c *notification, protocol string, inode uint64, length int) {
	switch {
	case isLocalProtocol(protocol) && !n.allSockets:
		n.listener.proceed(c.id)
	case isUnixProtocol(protocol):
		n.mu.Lock()
		defer n.mu.Unlock()
		n.answerConnected(c.id, inode)
	case isTCP(protocol) && length < leastAddress:
		n.answer(c.id, unix.EINVAL)
	case isTCP(protocol):
		n.mu.Lock()
		defer n.mu.Unlock()
		n.answerConnected(c.id, inode)
	default:
		n.answer(c.id, unix.EACCES)
	}
}

// answerConnected answers for a socket that isn't held: it is connected, listens, or came from accept.
//
// The kernel drops an answer if a signal arrives just as the answer is sent, and the thread then calls connect again. That call
// looks like a second connect of the program, so it gets EISCONN.
func (n *network) answerConnected(id, inode uint64) {
	if !n.takeConnected(inode) {
		n.answer(id, unix.EISCONN)
		return
	}
	if !n.answer(id, 0) {
		n.rememberConnected(inode)
	}
}

// connect connects a held socket, and answers when the command's connect would return.
func (n *network) connect(id, inode uint64, a *address) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sockets[inode]
	switch {
	case s == nil: // another thread has connected it, or this one before a signal made it call again
		n.answerConnected(id, inode)
	case s.isUDP:
		n.answer(id, connectSocket(s.fd, a.raw))
	default:
		blocks, errno := connectNow(s.fd, a.raw)
		n.settle(s, id, a, blocks, errno)
	}
}

// settle goes on after a socket's connect has returned errno.
func (n *network) settle(s *socket, id uint64, a *address, blocks bool, errno unix.Errno) {
	isUnderWay := errno == unix.EINPROGRESS || errno == unix.EALREADY
	switch {
	case isUnderWay && blocks:
		s.to = a.raw
		n.addWaiter(s, id)
		n.advance(s)
	case isUnderWay:
		// The command learns by itself what comes of it.
		n.answer(id, errno)
		n.advance(s)
	case errno == 0 && a.family == unix.AF_UNSPEC:
		if len(s.waiters) > 0 {
			n.tellWaiters(s, socketError(s.fd))
		}
		n.answer(id, 0)
	case errno == 0:
		n.drop(s)
		if !n.answer(id, 0) {
			n.rememberConnected(s.inode)
		}
	case errno == unix.EISCONN:
		n.drop(s)
		n.answer(id, errno)
	default:
		n.answer(id, errno)
	}
}

// connectNow connects without waiting, and reports whether the command wants to wait. The flag that says so is shared
// with the command, whose socket does nothing else before it is connected.
func connectNow(fd int, raw []byte) (blocks bool, errno unix.Errno) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false, errnoOf(err, unix.EBADF)
	}
	if blocks = flags&unix.O_NONBLOCK == 0; !blocks {
		return false, connectSocket(fd, raw)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_NONBLOCK); err != nil {
		return true, errnoOf(err, unix.EBADF)
	}
	errno = connectSocket(fd, raw)
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return true, errno
}

// addWaiter has a thread wait for a socket, as long as the socket's limit for sending says.
func (n *network) addWaiter(s *socket, id uint64) {
	if len(s.waiters) >= maxWaiters {
		s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool { return !n.listener.isValid(w.id) })
	}
	s.waiters = append(s.waiters, waiterFor(s, id))
}

// waiterFor is a thread that connects a socket and waits for it from now on.
func waiterFor(s *socket, id uint64) waiter {
	w := waiter{id: id}
	if limit, err := unix.GetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO); err == nil && limit.Nano() > 0 {
		w.deadline = time.Now().Add(time.Duration(limit.Nano()))
	}
	return w
}

// advance looks whether a socket's connection stands or has failed, and has it watched otherwise.
func (n *network) advance(s *socket) {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds, 0); err != nil {
		fds[0].Revents = 0
	}
	switch events := fds[0].Revents; {
	case events == 0:
		n.watch(s)
	case events&(unix.POLLERR|unix.POLLHUP) == 0:
		n.succeed(s)
	default:
		n.fail(s)
	}
}

// succeed gives up a socket whose connection stands.
func (n *network) succeed(s *socket) {
	told := false
	waiters := s.waiters
	s.waiters = nil
	n.drop(s)
	for _, w := range waiters {
		told = n.answer(w.id, 0) || told
	}
	if !told {
		n.rememberConnected(s.inode)
	}
}

// fail tells the threads that wait for a socket why it isn't connected. Without any, or if all were interrupted, the
// command asks the socket: the error is told once only.
func (n *network) fail(s *socket) {
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool { return !n.listener.isValid(w.id) })
	if len(s.waiters) == 0 {
		return
	}
	_, errno := connectNow(s.fd, s.to) // takes the error, as the kernel's connect does when it has waited
	if errno == unix.EINPROGRESS || errno == unix.EALREADY {
		n.watch(s)
		return
	}
	n.tellWaiters(s, errno)
}

// tellWaiters ends the waiting for a socket with an error.
func (n *network) tellWaiters(s *socket, errno unix.Errno) {
	for _, w := range s.waiters {
		n.answer(w.id, errno)
	}
	s.waiters = nil
}

// socketError takes a socket's error, which it has if a thread waits for it and it isn't connecting any more.
func socketError(fd int) unix.Errno {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || code == 0 {
		return unix.ECONNABORTED
	}
	return unix.Errno(code)
}

// watch has the socket reported when its connection stands or fails.
func (n *network) watch(s *socket) {
	op := unix.EPOLL_CTL_ADD
	if s.watched {
		op = unix.EPOLL_CTL_MOD
	}
	event := unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLONESHOT, Fd: int32(uint32(s.inode)), Pad: int32(uint32(s.inode >> 32))}
	if err := unix.EpollCtl(n.ready, op, s.fd, &event); err != nil {
		n.tellWaiters(s, errnoOf(err, unix.ENOMEM))
		return
	}
	s.watched = true
	n.setTimer()
}

// advanceReady goes on with the connections that ready reports, and reports whether a sweep is due. It never waits.
func (n *network) advanceReady() (sweeps bool) {
	events := make([]unix.EpollEvent, maxReady)
	count, err := unix.EpollWait(n.ready, events, 0)
	if err != nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range events[:count] {
		inode := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
		if inode == timerInode {
			sweeps = n.expire(time.Now())
			continue
		}
		if s := n.sockets[inode]; s != nil {
			n.advance(s)
		}
	}
	return sweeps
}

// handleBind binds a socket that is held: the address is read once, and used. Sockets that their command has closed may hold
// the port. A nameserver's port is the gate's: a UDP socket there would keep answers from being sent. The kernel goes on with
// what isn't held: sockets that reach no network, and TCP sockets that are connected or listen.
func (n *network) handleBind(c *notification) {
	t := target(c.pid)
	inode, errno := t.socketInode(int32(c.args[0]))
	var raw []byte
	if errno == 0 {
		raw, errno = t.address(c.args[1], int32(c.args[2]))
	}
	if errno != 0 {
		n.answer(c.id, errno)
		return
	}
	s := n.find(inode)
	switch protocol := t.socketProtocol(int32(c.args[0])); {
	case s != nil && s.isLocal:
		n.releaseName(raw, inode)
		n.listener.proceed(c.id)
	case s != nil:
		n.bind(c.id, inode, s.isUDP, raw)
	case isLocalProtocol(protocol), isTCP(protocol):
		n.listener.proceed(c.id)
	default:
		n.answer(c.id, unix.EACCES)
	}
}

func (n *network) bind(id, inode uint64, isUDP bool, raw []byte) {
	port := portOf(raw)
	if isUDP && n.answersAt(port) {
		n.answer(id, unix.EADDRINUSE)
		return
	}
	if port != 0 {
		n.releasePort(port, inode)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sockets[inode]
	switch {
	case !n.listener.isValid(id): // what was read may be another process's
	case s == nil: // it is connected or listens by now
		n.answer(id, unix.EINVAL)
	default:
		n.answer(id, bindSocket(s.fd, raw))
	}
}

// handleListen has a socket listen and gives it up: it won't be connected, and its port is free when its command closes
// it.
func (n *network) handleListen(c *notification) {
	inode, errno := target(c.pid).socketInode(int32(c.args[0]))
	if errno != 0 {
		n.answer(c.id, errno)
		return
	}
	if !n.listener.isValid(c.id) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sockets[inode]
	if s == nil || s.isLocal {
		if s != nil {
			n.listenLocal(s)
		}
		n.listener.proceed(c.id)
		return
	}
	errno = errnoOf(unix.Listen(s.fd, int(int32(c.args[1]))), 0)
	if errno == 0 {
		n.drop(s)
	}
	n.answer(c.id, errno)
}
