package proc

import (
	"bytes"
	"math"
	"os"
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
	for _, field := range fields {
		kib, _ := strconv.ParseInt(strings.TrimSuffix(StatusField(status, field), " kB"), 10, 64)
		sum += kib << 10
	}
	return sum
}

// StatusField is a field of a process's status; empty without it.
func StatusField(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
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
		for above := range ancestors(all, pid) {
			if _, isRoot := below[above]; isRoot {
				below[above] += Memory(pid)
			}
		}
	}
	return below
}
