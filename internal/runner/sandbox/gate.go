package sandbox

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// gate answers the kernel for one call.
type gate struct {
	listener kernel.Listener
	// programs and sockets answer for what is executed and for connections; nil if the gate doesn't hold them.
	programs *programs.Gate
	sockets  *sockets.Gate

	// receiving is held by the one worker that waits for the kernel.
	receiving sync.Mutex
	// begun is how many workers answer. The next one begins when one has something to do: most commands need few.
	begun int
	// stop is a pipe whose other end is closed to stop the workers.
	stop [2]int
	done sync.WaitGroup
}

// stopLimit bounds how long stopping waits for a worker whose process hangs in the kernel.
const stopLimit = time.Second

// newGate starts to answer. It takes the listener, also after an error.
func newGate(l kernel.Listener, p *programs.Gate, held *sockets.Network, allSockets bool) (*gate, error) {
	g := &gate{listener: l, programs: p}
	var err error
	if held != nil {
		if g.sockets, err = sockets.New(held, l, allSockets); err != nil {
			l.Close()
			return nil, err
		}
	}
	if err := unix.Pipe2(g.stop[:], unix.O_CLOEXEC); err != nil {
		g.release()
		return nil, err
	}
	g.addWorker()
	return g, nil
}

// addWorker has one more worker answer, unless all do. Whoever holds receiving calls it.
func (g *gate) addWorker() {
	if g.begun == kernel.MaxWorkers {
		return
	}
	g.begun++
	g.done.Add(1)
	kernel.OnWorker(func() {
		defer g.done.Done()
		for n := g.next(); n != nil; n = g.next() {
			g.handle(n)
		}
	})
}

// next waits for a system call. It is nil when the gate is stopped.
func (g *gate) next() *kernel.Notification {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	for {
		fds := g.polled()
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return nil
		}
		if fds[1].Revents != 0 || fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			return nil
		}
		if len(fds) > 2 && fds[2].Revents != 0 {
			g.sockets.AdvanceReady()
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			continue
		}
		if n, errno := g.listener.Receive(); errno == 0 {
			g.addWorker() // nobody else may be left to wait for the next one
			return &n
		}
	}
}

// polled are the listener, the end of the work, and what connects.
func (g *gate) polled() []unix.PollFd {
	fds := []unix.PollFd{{Fd: int32(g.listener), Events: unix.POLLIN}, {Fd: int32(g.stop[0]), Events: unix.POLLIN}}
	if g.sockets != nil {
		fds = append(fds, unix.PollFd{Fd: int32(g.sockets.Ready()), Events: unix.POLLIN})
	}
	return fds
}

// handle answers one system call.
func (g *gate) handle(n *kernel.Notification) {
	if g.sockets != nil && g.sockets.Handle(n) || g.programs != nil && g.programs.Handle(n) {
		return
	}
	g.listener.Refuse(n.ID, unix.ENOSYS)
}

// close stops answering: what executes from now on gets ENOSYS.
func (g *gate) close() {
	unix.Close(g.stop[1])
	stopped := make(chan struct{})
	go func() {
		g.done.Wait()
		unix.Close(g.stop[0])
		g.release()
		close(stopped)
	}()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-stopped:
	case <-limit.C:
	}
}

// release gives up the sockets and the listener.
func (g *gate) release() {
	if g.sockets != nil {
		g.sockets.Close() // first: a connect that ends afterwards has nobody to answer
	}
	g.listener.Close()
}
