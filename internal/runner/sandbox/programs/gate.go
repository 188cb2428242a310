package programs

import (
	"errors"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// Gate judges what the processes of one call execute.
type Gate struct {
	*Watch
	listener kernel.Listener
	// wake is called when a traced process is let go: until then nobody else can wait for it.
	wake func()
}

// NewGate makes a gate, which answers through a listener. wake is called when it lets a process go that nobody else could wait for.
func NewGate(w *Watch, l kernel.Listener, wake func()) *Gate { return &Gate{w, l, wake} }

// Handle answers one system call, and reports false for one that isn't about programs.
func (g *Gate) Handle(n *kernel.Notification) bool {
	switch n.Number {
	case unix.SYS_EXECVE:
		g.handleExec(n, execution{dirfd: unix.AT_FDCWD, path: n.Args[0], argv: n.Args[1], env: n.Args[2]})
	case unix.SYS_EXECVEAT:
		g.handleExec(n, execution{dirfd: n.Int(0), path: n.Args[1], argv: n.Args[2], env: n.Args[3], flags: n.Int(4)})
	case unix.SYS_MEMFD_CREATE:
		g.handleMemory(n)
	default:
		return false
	}
	return true
}

// handleExec judges what is executed. If it may go on, it is followed to what really runs.
func (g *Gate) handleExec(n *kernel.Notification, e execution) {
	v := g.list.look(n.Thread(), e)
	// What was read may be another process's if this one is gone.
	if !g.listener.IsValid(n.ID) {
		return
	}
	if v.errno == 0 {
		g.follow(n, v)
		return
	}
	if v.rule != "" {
		g.observed.addTry(try{thread: n.Thread(), argv: e.argv, env: e.env, path: v.path, rule: v.rule}, v.asked)
	}
	g.listener.Refuse(n.ID, v.errno)
}

// handleMemory makes a file in memory that can't be executed, whatever becomes of its mode.
func (g *Gate) handleMemory(n *kernel.Notification) {
	name, errno := n.Thread().Text(n.Args[0], kernel.MaxName)
	if errno != 0 {
		g.listener.Refuse(n.ID, errno)
		return
	}
	flags := n.Int(1)
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // kernels before 6.3: the look at what is executed has to do
		fd, err = unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC)
	}
	if err != nil {
		g.listener.Refuse(n.ID, kernel.ErrnoOf(err, unix.ENOMEM))
		return
	}
	defer unix.Close(fd)
	if errno := g.listener.Give(n.ID, fd, flags&unix.MFD_CLOEXEC != 0); errno != 0 && errno != unix.ENOENT {
		g.listener.Refuse(n.ID, errno)
	}
}

// follow lets an execution go on, and judges what really runs.
func (g *Gate) follow(n *kernel.Notification, v verdict) {
	err := g.listener.FollowExec(n, g.isAsJudged)
	switch {
	case err == nil:
		g.wake()
	case !errors.Is(err, unix.ESRCH) && g.listener.IsValid(n.ID):
		g.observed.addRefused(v.path, result.RuleUnreadable)
		g.listener.Refuse(n.ID, unix.EACCES)
	}
}

// isAsJudged is MayRun of a process that was told to go on: what may not run has changed since.
func (g *Gate) isAsJudged(pid int) bool {
	s, isThere := g.started(pid)
	if s.rule != "" && s.rule != result.RuleName {
		s.rule = result.RuleChanged
	}
	return isThere && g.count(s)
}
