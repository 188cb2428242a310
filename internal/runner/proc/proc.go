// Package proc reads what /proc says about processes: who is whose child, and how much memory each takes.
//
// What it returns may have changed by the time it is looked at. It waits for no process and signals none. It imports the
// standard library only, because it is linked into the supervisor that runs in every pod. It works on Linux only.
package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"iter"
	"os"
	"strconv"
)

// Process is what /proc says about a process.
type Process struct {
	PID, Parent, Group int
	Zombie             bool
}

// All reads every process that /proc shows.
func All() map[int]Process {
	all := map[int]Process{}
	for _, pid := range Numbers("/proc") {
		if p, ok := Read(pid); ok {
			all[p.PID] = p
		}
	}
	return all
}

// Descendants are the processes below one.
func Descendants(of int) []Process {
	all := All()
	var below []Process
	for pid, p := range all {
		for above := range ancestors(all, pid) {
			if above == of {
				below = append(below, p)
				break
			}
		}
	}
	return below
}

// ancestors are the processes above one. Their chain is longer than the number of processes only if an ID was reused during the reads.
func ancestors(all map[int]Process, pid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at, steps := all[pid].Parent, 0; at > 0 && steps <= len(all); at, steps = all[at].Parent, steps+1 {
			if !yield(at) {
				return
			}
		}
	}
}

// Read reads one process.
func Read(pid int) (Process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	return parseStat(stat)
}

// parseStat reads the fields of /proc/N/stat. The name of the program is in parentheses and may contain any byte.
func parseStat(stat []byte) (Process, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return Process{}, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 3 {
		return Process{}, false
	}
	var numbers [3]int
	for i, text := range [][]byte{bytes.TrimSpace(stat[:open]), fields[1], fields[2]} {
		number, err := strconv.Atoi(string(text))
		if err != nil {
			return Process{}, false
		}
		numbers[i] = number
	}
	return Process{numbers[0], numbers[1], numbers[2], fields[0][0] == 'Z' || fields[0][0] == 'X'}, true
}

// Children returns the children of some threads of this process.
func Children(threads ...int) []int {
	self := os.Getpid()
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
	for pid, p := range All() {
		if p.Parent == self {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Threads returns the threads of this process.
func Threads() []int { return Numbers("/proc/self/task") }

// Numbers returns the numbers among the names in a directory of /proc: processes, threads or descriptors.
func Numbers(dir string) []int {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if number, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers
}
