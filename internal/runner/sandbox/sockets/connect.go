package sockets

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// waiter is a thread that waits in connect. The timer ends that; nil for never.
type waiter struct {
	id    uint64
	timer *time.Timer
}

func (w waiter) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// maxReady is how many sockets are looked at together.
const maxReady = 16

// handleConnect decides about an address and connects the socket to it. It returns an error that is still to be answered, as do
// all that handle a call.
func (g *Gate) handleConnect(c *kernel.Notification, inode uint64) unix.Errno {
	raw, errno := readAddress(c.Thread(), c.Args[1], c.Int(2))
	if errno != 0 {
		return errno
	}
	s := g.find(inode)
	switch {
	case s == nil:
		return g.connectOther(c, inode, len(raw))
	case s.isLocal:
		return g.connectLocal(c, inode, raw)
	}
	a, errno := parseAddress(raw)
	// What was read may be another process's if this one is gone.
	if !g.listener.IsValid(c.ID) {
		return 0
	}
	if errno == 0 && a.family != unix.AF_UNSPEC {
		errno = g.decide(&a, s.isUDP)
	}
	if errno == 0 {
		g.connect(c.ID, inode, &a)
	}
	return errno
}

// decide asks whether a socket may be connected. A connection to a nameserver goes to the resolver: the rules keep commands from
// resolvers, since those of the pod's other calls answer by other rules.
func (g *Gate) decide(a *address, isUDP bool) unix.Errno {
	switch {
	case isUDP && g.UDP:
		return g.judge(a.to, network.UDP)
	case isUDP:
		return g.judge(a.to, network.RouteLookup)
	case g.Resolver != nil && slices.Contains(g.Nameservers, a.to):
		resolver := g.Resolver()
		if !resolver.IsValid() {
			return unix.ECONNREFUSED
		}
		return a.redirect(resolver)
	default:
		return g.judge(a.to, network.TCP)
	}
}

// connectOther answers for a socket that isn't held. The kernel goes on with one that reaches no network only.
func (g *Gate) connectOther(c *kernel.Notification, inode uint64, length int) unix.Errno {
	protocol := c.Thread().SocketProtocol(c.Int(0))
	switch {
	case isLocalProtocol(protocol) && !g.allSockets:
		g.listener.Proceed(c.ID)
	case isTCP(protocol) && length < leastAddress:
		return unix.EINVAL
	case isTCP(protocol), isUnixProtocol(protocol):
		g.mu.Lock()
		defer g.mu.Unlock()
		g.answerConnected(c.ID, inode)
	default:
		return unix.EACCES
	}
	return 0
}

// answerConnected answers for a socket that isn't held: it is connected, listens, or came from accept.
//
// The kernel drops an answer if a signal arrives just as the answer is sent, and the thread then calls connect again. That call
// looks like a second connect of the program, so it gets EISCONN.
func (g *Gate) answerConnected(id, inode uint64) {
	if !g.takeConnected(inode) {
		g.answer(id, unix.EISCONN)
		return
	}
	g.answerConnect(id, inode, 0)
}

// answerConnect answers for a socket that was given up if it is connected.
func (g *Gate) answerConnect(id, inode uint64, errno unix.Errno) {
	if !g.answer(id, errno) && errno == 0 {
		g.rememberConnected(inode)
	}
}

// connect connects a held socket, and answers when the command's connect would return.
func (g *Gate) connect(id, inode uint64, a *address) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sockets[inode]
	switch {
	case s == nil: // another thread has connected it, or this one before a signal made it call again
		g.answerConnected(id, inode)
	case s.isUDP:
		g.answer(id, connectSocket(s.fd, a.raw))
	default:
		blocks, errno := connectNow(s.fd, a.raw)
		g.settle(s, id, a, blocks, errno)
	}
}

// settle goes on after a socket's connect has returned errno.
func (g *Gate) settle(s *socket, id uint64, a *address, blocks bool, errno unix.Errno) {
	isUnderWay := errno == unix.EINPROGRESS || errno == unix.EALREADY
	switch {
	case isUnderWay && blocks:
		s.to, s.waiters = a.raw, append(g.waiting(s), g.waiterFor(s, id))
		g.advance(s)
	case isUnderWay:
		// The command learns by itself what comes of it.
		g.answer(id, errno)
		g.advance(s)
	case errno == 0 && a.family == unix.AF_UNSPEC:
		if len(s.waiters) > 0 {
			g.tellWaiters(s, socketError(s.fd))
		}
		g.answer(id, 0)
	case errno == 0, errno == unix.EISCONN:
		g.tellWaiters(s, 0)
		g.drop(s)
		g.answerConnect(id, s.inode, errno)
	default:
		g.answer(id, errno)
	}
}

// connectNow connects without waiting, and reports whether the command wants to wait. The flag that says so is shared
// with the command, whose socket does nothing else before it is connected.
func connectNow(fd int, raw []byte) (blocks bool, errno unix.Errno) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false, kernel.ErrnoOf(err, unix.EBADF)
	}
	if blocks = flags&unix.O_NONBLOCK == 0; !blocks {
		return false, connectSocket(fd, raw)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_NONBLOCK); err != nil {
		return true, kernel.ErrnoOf(err, unix.EBADF)
	}
	errno = connectSocket(fd, raw)
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return true, errno
}

// waiterFor is a thread that waits for a socket from now on, at most for the socket's limit of time. The socket goes on connecting.
func (g *Gate) waiterFor(s *socket, id uint64) waiter {
	limit := sendTimeout(s.fd)
	if limit <= 0 {
		return waiter{id: id}
	}
	return waiter{id: id, timer: time.AfterFunc(limit, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if i := slices.IndexFunc(s.waiters, func(w waiter) bool { return w.id == id }); i >= 0 {
			s.waiters = slices.Delete(s.waiters, i, i+1)
			g.answer(id, unix.EINPROGRESS)
		}
	})}
}

// sendTimeout is how long a socket waits at most, 0 for ever.
func sendTimeout(fd int) time.Duration {
	limit, err := unix.GetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO)
	if err != nil {
		return 0
	}
	return time.Duration(limit.Nano())
}

// advance looks whether a socket's connection stands or has failed, and has it watched otherwise.
func (g *Gate) advance(s *socket) {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds, 0); err != nil {
		fds[0].Revents = 0
	}
	switch events := fds[0].Revents; {
	case events == 0:
		g.watch(s)
	case events&(unix.POLLERR|unix.POLLHUP) == 0:
		g.succeed(s)
	default:
		g.fail(s)
	}
}

// succeed gives up a socket whose connection stands.
func (g *Gate) succeed(s *socket) {
	told := false
	waiters := s.takeWaiters()
	g.drop(s)
	for _, w := range waiters {
		told = g.answer(w.id, 0) || told
	}
	if !told {
		g.rememberConnected(s.inode)
	}
}

// fail tells the threads that wait for a socket why it isn't connected. Without any, or if all were interrupted, the
// command asks the socket: the error is told once only.
func (g *Gate) fail(s *socket) {
	if len(g.waiting(s)) == 0 {
		return
	}
	_, errno := connectNow(s.fd, s.to) // takes the error, as the kernel's connect does when it has waited
	if errno == unix.EINPROGRESS || errno == unix.EALREADY {
		g.watch(s)
		return
	}
	g.tellWaiters(s, errno)
}

// tellWaiters ends the waiting for a socket with an error; 0 is none.
func (g *Gate) tellWaiters(s *socket, errno unix.Errno) {
	for _, w := range s.takeWaiters() {
		g.answer(w.id, errno)
	}
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
func (g *Gate) watch(s *socket) {
	op := unix.EPOLL_CTL_ADD
	if s.watched {
		op = unix.EPOLL_CTL_MOD
	}
	event := unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLONESHOT, Fd: int32(uint32(s.inode)), Pad: int32(uint32(s.inode >> 32))}
	if err := unix.EpollCtl(g.ready, op, s.fd, &event); err != nil {
		g.tellWaiters(s, kernel.ErrnoOf(err, unix.ENOMEM))
		return
	}
	s.watched = true
}

// Ready is a descriptor that is ready to be read when AdvanceReady has something to do.
func (g *Gate) Ready() int { return g.ready }

// AdvanceReady goes on with what Ready reports. It never waits.
func (g *Gate) AdvanceReady() {
	events := make([]unix.EpollEvent, maxReady)
	count, err := unix.EpollWait(g.ready, events, 0)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range events[:count] {
		if s := g.sockets[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]; s != nil {
			g.advance(s)
		}
	}
}

// handleBind binds a socket that is held: the address is read once, and used. Sockets that their command has closed may hold
// the port. A nameserver's port is the gate's: a UDP socket there would keep answers from being sent. The kernel goes on with
// what isn't held: sockets that reach no network, and TCP sockets that are connected or listen.
func (g *Gate) handleBind(c *kernel.Notification, inode uint64) unix.Errno {
	raw, errno := readAddress(c.Thread(), c.Args[1], c.Int(2))
	if errno != 0 {
		return errno
	}
	s := g.find(inode)
	switch {
	case s == nil:
		return g.proceedOther(c)
	case s.isLocal:
		g.releaseName(raw, inode)
		g.listener.Proceed(c.ID)
		return 0
	}
	port := portOf(raw)
	if s.isUDP && g.answersAt(port) {
		return unix.EADDRINUSE
	}
	if port != 0 {
		g.releasePort(port, inode)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s = g.sockets[inode]
	switch {
	case !g.listener.IsValid(c.ID): // what was read may be another process's
	case s == nil: // it is connected or listens by now
		return unix.EINVAL
	default:
		g.answer(c.ID, bindSocket(s.fd, raw))
	}
	return 0
}

// proceedOther lets the kernel go on with what isn't held, if that can't reach anything that way.
func (g *Gate) proceedOther(c *kernel.Notification) unix.Errno {
	if protocol := c.Thread().SocketProtocol(c.Int(0)); !isLocalProtocol(protocol) && !isTCP(protocol) {
		return unix.EACCES
	}
	g.listener.Proceed(c.ID)
	return 0
}

// handleListen has a socket listen and gives it up: it won't be connected, and its port is free when its command closes
// it.
func (g *Gate) handleListen(c *kernel.Notification, inode uint64) unix.Errno {
	if !g.listener.IsValid(c.ID) {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sockets[inode]
	if s == nil || s.isLocal {
		if s != nil {
			g.listenLocal(s)
		}
		g.listener.Proceed(c.ID)
		return 0
	}
	errno := kernel.ErrnoOf(unix.Listen(s.fd, c.Int(1)), 0)
	if errno == 0 {
		g.drop(s)
	}
	g.answer(c.ID, errno)
	return 0
}
