package runner

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox"
)

// subreaperTree is the tree for a process that isn't the first of its PID namespace. As a child subreaper it becomes the
// parent of orphans, so that every process of the tree stays its descendant.
type subreaperTree struct {
	leader int
	self   int
	reaped bool
	// earlier are children that existed before the start; they don't belong to the command.
	earlier     map[identity]bool
	earlierPIDs map[int]bool
}

// identity distinguishes a process from a later one with the same process ID.
type identity struct {
	pid   int
	start uint64
}

// process is what /proc says about a process.
type process struct {
	identity
	parent, group int
	zombie        bool
}

// newSubreaperTree is called before the leader starts. The process stays a subreaper afterwards.
func newSubreaperTree() *subreaperTree {
	t := &subreaperTree{self: os.Getpid(), earlier: map[identity]bool{}, earlierPIDs: map[int]bool{}}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	for _, pid := range children(t.self, threads()...) {
		if p, ok := readProcess(strconv.Itoa(pid)); ok {
			t.earlier[p.identity] = true
			t.earlierPIDs[pid] = true
		}
	}
	return t
}

// lead makes a process the leader. It may have existed before.
func (t *subreaperTree) lead(leader int) {
	t.leader = leader
	delete(t.earlierPIDs, leader)
	maps.DeleteFunc(t.earlier, func(id identity, _ bool) bool { return id.pid == leader })
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
		if !p.zombie && p.group > 1 && !done[p.group] {
			done[p.group] = true
			_ = unix.Kill(-p.group, sig)
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
	return slices.DeleteFunc(children(t.self, t.self), func(pid int) bool {
		return pid == t.leader || t.isEarlier(pid)
	})
}

// children returns the children of some threads of the process self.
func children(self int, threads ...int) []int {
	var pids []int
	for _, thread := range threads {
		list, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(thread) + "/children")
		if errors.Is(err, fs.ErrNotExist) && thread == self {
			return childrenAmongAll(self)
		}
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// childrenAmongAll is for kernels that don't list the children of a thread.
func childrenAmongAll(self int) []int {
	var pids []int
	for pid, p := range readProcesses() {
		if p.parent == self {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (t *subreaperTree) isEarlier(pid int) bool {
	if !t.earlierPIDs[pid] {
		return false
	}
	p, ok := readProcess(strconv.Itoa(pid))
	return ok && t.earlier[p.identity]
}

func threads() []int {
	var ids []int
	entries, _ := os.ReadDir("/proc/self/task")
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
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
func (t *subreaperTree) members() []process {
	all := readProcesses()
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
		if p.parent == t.self {
			ours[pid] = !t.earlier[p.identity]
		} else {
			ours[pid] = isOurs(p.parent, depth+1)
		}
		return ours[pid]
	}
	var members []process
	for pid, p := range all {
		if isOurs(pid, 0) {
			members = append(members, p)
		}
	}
	return members
}

// readProcesses reads every process that /proc shows.
func readProcesses() map[int]process {
	all := map[int]process{}
	dir, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if p, ok := readProcess(name); ok {
			all[p.pid] = p
		}
	}
	return all
}

func readProcess(pid string) (process, bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return process{}, false
	}
	return parseStat(stat)
}

// parseStat reads the fields of /proc/N/stat. The name of the program is in parentheses and may contain any byte.
func parseStat(stat []byte) (process, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return process{}, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 20 {
		return process{}, false
	}
	var p process
	var errs [4]error
	p.pid, errs[0] = strconv.Atoi(string(bytes.TrimSpace(stat[:open])))
	p.parent, errs[1] = strconv.Atoi(string(fields[1]))
	p.group, errs[2] = strconv.Atoi(string(fields[2]))
	p.start, errs[3] = strconv.ParseUint(string(fields[19]), 10, 64)
	p.zombie = fields[0][0] == 'Z' || fields[0][0] == 'X'
	for _, err := range errs {
		if err != nil {
			return process{}, false
		}
	}
	return p, true
}
