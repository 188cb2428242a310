package runner

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// tree is everything that the command started, itself included: the children of this process, and all that descends from
// them. The kernel makes orphans children of this process, which is the first of its PID namespace or a child subreaper.
type tree struct {
	leader int
	// inside is what holds the command; nil for a command without rules.
	inside *sandbox.Process
	// reaped says that another process may have the leader's ID by now.
	reaped bool
	// memory is the most that a process had of those that were reaped here.
	memory int64
}

// newTree is called with the leader's process ID. becomeSubreaper comes first.
func newTree(leader int, inside *sandbox.Process) *tree { return &tree{leader: leader, inside: inside} }

// becomeSubreaper is called before the leader starts, so that no orphan gets another parent.
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reapBatch bounds one reap: a command can start processes without end that end at once.
const reapBatch = 4096

// reap collects, without waiting, the status of children that have ended. It returns the status of the leader if that is
// among them, and whether a process of the tree is left: only the kernel's ECHILD says that none is.
func (t *tree) reap() (leader *unix.WaitStatus, left bool) {
	if tracer := t.inside.Tracer(); tracer != nil {
		leader, left = tracer.Ended()
		t.reaped = leader != nil
		return leader, left
	}
	for range reapBatch {
		pid, hasEnded, err := kernel.Peek()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return leader, false
		case !hasEnded: // a wait would take away what the child's tracer waits for
			return leader, true
		}
		var status unix.WaitStatus
		var usage unix.Rusage
		if got, err := unix.Wait4(pid, &status, unix.WNOHANG|unix.WALL, &usage); err != nil || got != pid {
			continue
		}
		t.memory = max(t.memory, maxMemoryOf(&usage))
		if pid == t.leader && !t.reaped {
			leader, t.reaped = &status, true
		}
	}
	return leader, true
}

// maxMemory is the most memory that a process of the tree had which has ended.
func (t *tree) maxMemory() int64 {
	if tracer := t.inside.Tracer(); tracer != nil {
		return tracer.MaxMemory()
	}
	return t.memory
}

// signal reaches every process of the tree that there is at the moment.
func (t *tree) signal(sig unix.Signal) {
	if os.Getpid() == 1 {
		// The kernel delivers it to all processes of the namespace at once. It fails only if no process is left.
		_ = unix.Kill(-1, sig)
		return
	}
	// Whole process groups, each of them at once. If processes were signalled one by one, a shell whose child ends first
	// would go on to its next command, and processes that fork would escape. The leader has a session of its own, so the
	// process groups of the tree have no other members.
	done := map[int]bool{unix.Getpgrp(): true}
	if !t.reaped {
		// First, because most other processes serve the leader.
		_ = unix.Kill(-t.leader, sig)
		done[t.leader] = true
	}
	for _, p := range proc.Descendants(os.Getpid()) {
		if !p.Zombie && p.Group > 1 && !done[p.Group] {
			done[p.Group] = true
			_ = unix.Kill(-p.Group, sig)
		}
	}
}

// running counts the processes of the tree that haven't ended.
func (t *tree) running() (n int64) {
	for _, p := range proc.Descendants(os.Getpid()) {
		if !p.Zombie {
			n++
		}
	}
	return n
}

// killChildren kills each child right after a look at it. A process that starts the next one and ends is gone from a list of
// all processes before that is read. The kernel gives orphans to the first thread.
func (t *tree) killChildren() {
	for _, thread := range proc.Threads() {
		for _, pid := range proc.Children(thread) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
