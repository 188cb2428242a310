package runner

import (
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// usageBefore is what the kernel had counted by the start of a command.
type usageBefore struct {
	// children is what the children took that this process had reaped.
	children unix.Rusage
	// stage is the processor time that the leader took before it became the command.
	stage time.Duration
	// memory is the most that this process had at a time before the command ran. The kernel counts it as the command's too, because the
	// command is started from this process.
	memory int64
}

// memorySlack is by how much two readings of one size can differ: the kernel counts pages for each processor.
const memorySlack = 1 << 20

// usage returns what the command took; nil of a command that nothing was reaped of.
func (r *run) usage() *result.Usage {
	if !r.tree.reaped {
		return nil
	}
	var after unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &after) != nil {
		return nil
	}
	before := &r.before.children
	cpu := max(cpuTime(&after)-cpuTime(before)-r.before.stage, 0)
	u := &result.Usage{CPUMilliseconds: new(cpu.Round(time.Millisecond).Milliseconds())}
	if most := r.tree.maxMemory(); most > r.before.memory+memorySlack {
		u.MaxRSSBytes = &most
	}
	if after.Minflt > before.Minflt && countsBlocks() {
		u.ReadBytes = new((after.Inblock - before.Inblock) * blockSize)
		u.WrittenBytes = new((after.Oublock - before.Oublock) * blockSize)
	}
	if !r.cmd.Beside {
		u.PeakProcesses = peakTasks(os.DirFS("/"))
	}
	return u
}

func cpuTime(u *unix.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// blockSize is that of the blocks in which getrusage(2) counts, whatever the file system.
const blockSize = 512

// countsBlocks says that the kernel counts what is read from and written to storage. Without that, and in gVisor, which also
// counts no page faults, the numbers are 0.
var countsBlocks = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/io")
	return err == nil
})

// maxMemoryOf is the most memory that a process had, or one of those that it waited for.
func maxMemoryOf(u *unix.Rusage) int64 { return u.Maxrss << 10 }

// processorTime is what a process took; 0 where the kernel doesn't say.
func processorTime(pid int) time.Duration {
	// clock_getcpuclockid(3): the clock of a whole process.
	const ofProcess = 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|ofProcess), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// peakTasks is the most processes and threads that the container had at a time, this process's among them; nil on kernels
// that don't say. It says nothing of one command where others run, or ran.
func peakTasks(root fs.FS) *int64 {
	for g := range controlGroups(root, "pids") {
		if n, known := g.number("pids.peak"); known {
			return &n
		}
	}
	return nil
}
