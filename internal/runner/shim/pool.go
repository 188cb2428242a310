package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// Pool runs commands in shims. There is one in a process.
type Pool struct {
	// keep is how many shims are kept for the commands to come.
	keep    int
	memory  runner.Memory
	overdue time.Duration
	// strayLimit is how long what is left of a command may take to end.
	strayLimit time.Duration
	// onSurvivors is called when it takes longer.
	onSurvivors func()

	// children is held while a child of this process is started or while those that are no shims are ended: nobody may
	// take a shim for one of them.
	children sync.Mutex
	shims    map[int]bool

	mu      sync.Mutex
	idle    []*process
	running map[*call]bool
	// unwatch ends the watch of the memory, which there is while commands run; nil before the first one.
	unwatch context.CancelFunc
	// starting says that a shim is being started ahead.
	starting bool
	closed   bool

	stop func()
	done sync.WaitGroup
}

// process is a shim.
type process struct {
	pid  int
	conn *net.UnixConn
}

// NewPool returns a pool for as many commands as usually run at a time, and starts the first shim. The process becomes a child
// subreaper. When processes of a command can't be ended, onSurvivors is called, once for each such command; it must not block, and
// is to end this process, and all others with it. Close ends the pool.
func NewPool(commands int, onSurvivors func()) *Pool {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	p := &Pool{
		// One is ready while all others run.
		keep: commands + 1, overdue: defaultOverdue,
		strayLimit: defaultStrayLimit, onSurvivors: onSurvivors,
		shims: map[int]bool{}, running: map[*call]bool{},
	}
	stop := make(chan struct{})
	p.stop = sync.OnceFunc(func() { close(stop) })
	p.done.Go(func() { p.reapStrays(stop) })
	if g := runner.FindMemoryGroup(); g != nil {
		p.memory = g
	}
	p.startAhead()
	return p
}

// Close ends the shims. No command may be running.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	p.stop()
	for _, s := range idle {
		p.discard(s)
	}
	p.done.Wait()
}

// take returns a shim that was started ahead, or a new one.
func (p *Pool) take() (*process, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	return p.start()
}

// put gives a shim back.
func (p *Pool) put(s *process) {
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < p.keep
	if keep {
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if !keep {
		p.discard(s)
	}
}

// startAhead starts the shim for the next command if there is none.
func (p *Pool) startAhead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.starting || len(p.idle) > 0 {
		return
	}
	p.starting = true
	p.done.Go(func() {
		s, err := p.start()
		p.mu.Lock()
		p.starting = false
		p.mu.Unlock()
		// A command that comes starts its own when this fails.
		if err == nil {
			p.put(s)
		}
	})
}

// readyLimit is how long a shim may take until it is ready.
const readyLimit = 30 * time.Second

// start starts a shim and waits until it is ready.
func (p *Pool) start() (*process, error) {
	s, err := p.fork()
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if err := s.awaitReady(); err != nil {
		p.discard(s)
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	return s, nil
}

func (p *Pool) fork() (*process, error) {
	p.children.Lock()
	defer p.children.Unlock()
	pid, socket, err := kernel.ForkSelf(shimName, "PATH="+os.Getenv("PATH"))
	if err != nil {
		return nil, err
	}
	conn, err := unixConn(socket)
	if err != nil {
		return nil, err // it ends without its connection, as a stray
	}
	p.shims[pid] = true
	return &process{pid: pid, conn: conn}, nil
}

func (s *process) awaitReady() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(readyLimit)); err != nil {
		return err
	}
	var r reply
	if _, err := receive(s.conn, &r, maxReply); err != nil {
		return err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	switch {
	case err != nil:
		return err
	case !r.Ready || proc.StatusField(status, "TracerPid") != "0":
		return errors.New("it is traced")
	}
	return s.conn.SetReadDeadline(time.Time{})
}

// send tells the shim something. One that is stopped reads nothing; what it was sent in part is lost with it.
func (s *process) send(r *request, limit time.Duration, files ...*os.File) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return send(s.conn, r, files...)
}

// kill ends a shim, whose connection then ends.
func (s *process) kill() { _ = unix.Kill(s.pid, unix.SIGKILL) }

// discard ends a shim and what is left of its command, and reports whether all of that has ended. A shim can take long too: whoever
// traces it keeps its end back.
func (p *Pool) discard(s *process) bool {
	s.conn.Close()
	s.kill()
	p.children.Lock()
	defer p.children.Unlock()
	isEnded := p.endStrays(s.pid)
	delete(p.shims, s.pid)
	if !isEnded {
		p.onSurvivors()
	}
	return isEnded
}
