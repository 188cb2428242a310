package proc

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Memory is what a process takes that isn't a file's, in bytes: its own, and what it shares with others that has no file.
func Memory(pid int) int64 {
	return statusBytes(strconv.Itoa(pid), "RssAnon", "RssShmem")
}

// statusBytes is the sum of fields of a process's status, in bytes; 0 without them.
func statusBytes(process string, fields ...string) (sum int64) {
	status, _ := os.ReadFile("/proc/" + process + "/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if slices.Contains(fields, name) {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			sum += kib << 10
		}
	}
	return sum
}

// PeakMemory is the most memory that this process had at a time, in bytes, files included.
func PeakMemory() int64 {
	if peak := statusBytes("self", "VmHWM"); peak > 0 {
		return peak
	}
	// gVisor doesn't say it there. Elsewhere this is also what was there before this program was executed.
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return math.MaxInt64 >> 1
	}
	return usage.Maxrss << 10
}

// MemoryBelow is what the descendants of each process take together, itself excluded.
func MemoryBelow(roots []int) map[int]int64 {
	all := All()
	below := make(map[int]int64, len(roots))
	for _, root := range roots {
		below[root] = 0
	}
	for pid := range all {
		var used int64
		isKnown := false
		// A chain is longer than the number of processes only if an ID was reused during the reads.
		for at, steps := all[pid].Parent, 0; at > 0 && steps <= len(all); at, steps = all[at].Parent, steps+1 {
			if _, isRoot := below[at]; !isRoot {
				continue
			}
			if !isKnown {
				used, isKnown = Memory(pid), true
			}
			below[at] += used
		}
	}
	return below
}
