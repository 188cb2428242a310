package runner

import (
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox"
)

// subreaperTree is the tree for a process that isn't the first of its PID namespace. As a child subreaper it becomes the
// parent of orphans, so that every process of the tree stays its descendant.
type subreaperTree struct {
	leader int
	self   int
	reaped bool
	// earlier are children that existed before the start; they don't belong to the command.
	earlier     map[proc.ID]bool
	earlierPIDs map[int]bool
}

// newSubreaperTree is called before the leader starts. The process stays a subreaper afterwards.
func newSubreaperTree() *subreaperTree {
	t := &subreaperTree{self: os.Getpid(), earlier: map[proc.ID]bool{}, earlierPIDs: map[int]bool{}}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	for _, pid := range proc.Children(proc.Threads()...) {
		if p, ok := proc.Read(pid); ok {
			t.earlier[p.ID] = true
			t.earlierPIDs[pid] = true
		}
	}
	return t
}

// lead makes a process the leader. It may have existed before.
func (t *subreaperTree) lead(leader int) {
	t.leader = leader
	delete(t.earlierPIDs, leader)
	maps.DeleteFunc(t.earlier, func(id proc.ID, _ bool) bool { return id.PID == leader })
}

// signal signals whole process groups, each of them at once. If processes were signalled one by one, a shell whose child
// ends first would go on to its next command, and processes that fork would escape. The leader has a session of its own,
// so the process groups of the tree have no other members.
func (t *subreaperTree) signal(sig unix.Signal) {
	done := map[int]bool{unix.Getpgrp(): true}
	if !t.reaped { // afterwards another process may have its ID
		// First, because most other processes serve the leader.
		_ = unix.Kill(-t.leader, sig)
		done[t.leader] = true
	}
	for _, p := range t.members() {
		if !p.Zombie && p.Group > 1 && !done[p.Group] {
			done[p.Group] = true
			_ = unix.Kill(-p.Group, sig)
		}
	}
	if sig == unix.SIGKILL {
		t.sweep()
	}
}

// sweepRounds bounds one sweep to a few milliseconds.
const sweepRounds = 200

// sweep kills orphans as they appear. A chain of processes, each of which starts the next one and ends, isn't found by
// listing all processes.
func (t *subreaperTree) sweep() {
	for idle, round := 0, 0; idle < 3 && round < sweepRounds; round++ {
		idle++
		for _, pid := range t.orphans() {
			idle = 0
			_ = unix.Kill(pid, unix.SIGKILL)
			waitFor(pid)
		}
	}
}

func (t *subreaperTree) reap() (leader *unix.WaitStatus, left bool) {
	if !t.reaped {
		leader = waitFor(t.leader)
		t.reaped = leader != nil
	}
	left = !t.reaped
	// Every process of the tree descends from a child of this process, which becomes the parent of orphans.
	for _, pid := range t.orphans() {
		if waitFor(pid) == nil {
			left = true
		}
	}
	return leader, left
}

// orphans are the children of this process except for the leader and earlier ones. The kernel gives orphans to the first
// thread.
func (t *subreaperTree) orphans() []int {
	return slices.DeleteFunc(proc.Children(t.self), func(pid int) bool {
		return pid == t.leader || t.isEarlier(pid)
	})
}

func (t *subreaperTree) isEarlier(pid int) bool {
	if !t.earlierPIDs[pid] {
		return false
	}
	p, ok := proc.Read(pid)
	return ok && t.earlier[p.ID]
}

// waitFor returns the status of a child if it has ended.
func waitFor(pid int) *unix.WaitStatus {
	for {
		// A wait would take away what the tracer of the child waits for.
		if _, state, err := sandbox.Peek(pid); err == nil && state != sandbox.Ended {
			return nil
		}
		var ws unix.WaitStatus
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG|unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || got != pid:
			return nil
		default:
			return &ws
		}
	}
}

// members are the descendants of this process except for earlier children and their descendants.
func (t *subreaperTree) members() []proc.Process {
	all := proc.All()
	ours := map[int]bool{}
	var isOurs func(pid, depth int) bool
	isOurs = func(pid, depth int) bool {
		if known, ok := ours[pid]; ok {
			return known
		}
		p, ok := all[pid]
		// A chain is longer than the number of processes only if an ID was reused during the reads.
		if !ok || depth > len(all) {
			return false
		}
		if p.Parent == t.self {
			ours[pid] = !t.earlier[p.ID]
		} else {
			ours[pid] = isOurs(p.Parent, depth+1)
		}
		return ours[pid]
	}
	var members []proc.Process
	for pid, p := range all {
		if isOurs(pid, 0) {
			members = append(members, p)
		}
	}
	return members
}
