package runner

import (
	"errors"

	"golang.org/x/sys/unix"
)

// tree is everything that the command started, itself included.
type tree interface {
	// signal reaches every process of the tree.
	signal(sig unix.Signal)
	// reap takes the status of every child of ours in the tree that has ended, without waiting. It returns
	// the leader's when that is among them, and whether any process of the tree is left.
	reap() (leader *unix.WaitStatus, left bool)
}

// namespaceTree is the tree of the first process of a PID namespace: all others in it. The kernel gives us
// every orphan and delivers a signal to all at one moment, so nothing can fork its way out.
type namespaceTree struct{ leader int }

func (t *namespaceTree) signal(sig unix.Signal) {
	// The only failure is that nobody is left.
	_ = unix.Kill(-1, sig)
}

func (t *namespaceTree) reap() (leader *unix.WaitStatus, left bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return leader, false
		case pid == 0:
			return leader, true
		case pid == t.leader:
			leader = &ws
		}
	}
}
