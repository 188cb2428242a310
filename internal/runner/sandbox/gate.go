package sandbox

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// watch is what may run, and what did and didn't.
type watch struct {
	programs *programs
	observed observed
}

// gate answers the kernel for one call.
type gate struct {
	watch
	listener listener
	// network answers for connections; nil if the gate doesn't hold them.
	network *network
	// wake is called when a traced process is let go: until then nobody else can wait for it.
	wake func()

	// receiving is held by the one worker that waits for the kernel.
	receiving sync.Mutex
	// stop is a pipe whose other end is closed to stop the workers.
	stop [2]int
	done sync.WaitGroup
}

// maxWorkers is how many processes can be in their execve at a time; others wait. One that waits for a slow disk
// doesn't hold up the others.
const maxWorkers = 4

// stopLimit bounds how long stopping waits for a worker whose process hangs in the kernel.
const stopLimit = time.Second

// newGate starts to answer. It takes the listener and the workers.
func newGate(l listener, p *programs, held *Network, allSockets bool, wake func(), w workers) (*gate, error) {
	g := &gate{watch: watch{programs: p}, listener: l, wake: wake}
	if held != nil {
		var err error
		if g.network, err = newNetwork(held, l, allSockets); err != nil {
			unix.Close(int(l))
			return nil, err
		}
	}
	if err := unix.Pipe2(g.stop[:], unix.O_CLOEXEC); err != nil {
		unix.Close(int(l))
		if g.network != nil {
			g.network.close()
		}
		return nil, err
	}
	for range maxWorkers {
		g.done.Add(1)
		w <- func() {
			defer g.done.Done()
			g.work()
		}
	}
	return g, nil
}

// work answers until the gate is stopped.
func (g *gate) work() {
	for {
		n, ok := g.next()
		if !ok {
			return
		}
		g.handle(&n)
	}
}

// next waits for the kernel, and for a sweep.
func (g *gate) next() (notification, bool) {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	for {
		fds := g.polled()
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return notification{}, false
		}
		if fds[1].Revents != 0 || fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			return notification{}, false
		}
		if len(fds) > 2 && fds[2].Revents != 0 && g.network.advanceReady() {
			return notification{number: sweepDue}, true
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			continue
		}
		if n, errno := g.listener.receive(); errno == 0 {
			return n, true
		}
	}
}

// polled are the listener, the end of the work, and what connects.
func (g *gate) polled() []unix.PollFd {
	fds := []unix.PollFd{{Fd: int32(g.listener), Events: unix.POLLIN}, {Fd: int32(g.stop[0]), Events: unix.POLLIN}}
	if g.network != nil {
		fds = append(fds, unix.PollFd{Fd: int32(g.network.ready), Events: unix.POLLIN})
	}
	return fds
}

// close stops answering: what executes from now on gets ENOSYS.
func (g *gate) close() {
	unix.Close(g.stop[1])
	stopped := make(chan struct{})
	go func() {
		g.done.Wait()
		unix.Close(g.stop[0])
		if g.network != nil {
			g.network.close() // first: a connect that ends afterwards has nobody to answer
		}
		unix.Close(int(g.listener))
		close(stopped)
	}()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-stopped:
	case <-limit.C:
	}
}

// handle answers one system call.
func (g *gate) handle(n *notification) {
	if g.network != nil && g.network.handle(n) {
		return
	}
	switch n.number {
	case unix.SYS_EXECVE:
		g.handleExec(n, execution{dirfd: unix.AT_FDCWD, path: n.args[0], argv: n.args[1], env: n.args[2]})
	case unix.SYS_EXECVEAT:
		g.handleExec(n, execution{dirfd: int(int32(n.args[0])), path: n.args[1], argv: n.args[2], env: n.args[3], flags: int(int32(n.args[4]))})
	case unix.SYS_MEMFD_CREATE:
		g.handleMemory(n)
	default:
		g.listener.refuse(n.id, unix.ENOSYS)
	}
}

func (g *gate) handleExec(n *notification, e execution) {
	v := g.look(target(n.pid), e)
	// What was read may be another process's if this one is gone.
	if !g.listener.isValid(n.id) {
		return
	}
	if v.errno == 0 {
		g.follow(n, v)
		return
	}
	if v.rule != "" {
		g.observed.addTry(try{thread: n.pid, argv: e.argv, env: e.env, path: v.path, rule: v.rule}, v.asked)
	}
	g.listener.refuse(n.id, v.errno)
}

// handleMemory makes a file in memory that can't be executed, whatever becomes of its mode.
func (g *gate) handleMemory(n *notification) {
	name, errno := target(n.pid).text(n.args[0], maxName)
	if errno != 0 {
		g.listener.refuse(n.id, errno)
		return
	}
	flags := int(uint32(n.args[1]))
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // kernels before 6.3: the look at what is executed has to do
		fd, err = unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC)
	}
	if err != nil {
		g.listener.refuse(n.id, errnoOf(err, unix.ENOMEM))
		return
	}
	defer unix.Close(fd)
	if errno := g.listener.give(n.id, fd, flags&unix.MFD_CLOEXEC != 0); errno != 0 && errno != unix.ENOENT {
		g.listener.refuse(n.id, errno)
	}
}

// report adds what was executed and refused to an outcome.
func (o *observed) report(to *result.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to.Executed, to.MoreExecuted = o.executed.list, o.executed.more
	to.Refused, to.MoreRefused = o.refused.list, o.refused.more
}
