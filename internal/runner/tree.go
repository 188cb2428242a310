package runner

import (
	"errors"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox"
)

// tree is everything that the command started, itself included.
type tree interface {
	// signal reaches every process of the tree.
	signal(sig unix.Signal)
	// reap collects, without waiting, the status of each child in the tree that has ended. It returns the status of the
	// leader if that is among them, and whether a process of the tree is left.
	reap() (leader *unix.WaitStatus, left bool)
}

// namespaceTree is the tree for the first process of a PID namespace: all other processes of the namespace. The kernel
// makes every orphan a child of the first process, and delivers a signal to all processes at once, so that none escapes
// by forking.
type namespaceTree struct{ leader int }

func (t *namespaceTree) signal(sig unix.Signal) {
	// It fails only if no process is left.
	_ = unix.Kill(-1, sig)
}

func (t *namespaceTree) reap() (leader *unix.WaitStatus, left bool) {
	for {
		pid, state, err := sandbox.Peek(-1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return leader, false
		case state != sandbox.Ended:
			return leader, true
		}
		if ws := waitFor(pid); ws != nil && pid == t.leader {
			leader = ws
		}
	}
}
