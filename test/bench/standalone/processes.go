package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// The processes that share the machine in a run, as they are named in reports.
const (
	Operator  = "operator"
	APIServer = "API server"
	Etcd      = "etcd"
	Benchmark = "benchmark"
)

// Processes are all of them, in the order of tables.
var Processes = []string{Operator, APIServer, Etcd, Benchmark}

// commands are the names that the kernel has for the children.
var commands = map[string]string{"manager": Operator, "kube-apiserver": APIServer, "etcd": Etcd}

// CPU is the processor time, in seconds, that this process and each of its children has used.
type CPU map[string]float64

// ReadCPU reads it from /proc.
func ReadCPU() (CPU, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("read CPU times: %w", err)
	}
	own, times := os.Getpid(), CPU{}
	for _, p := range all {
		stat, err := p.Stat()
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
			// It has ended.
		case err != nil:
			return nil, fmt.Errorf("read CPU times: %w", err)
		case stat.PID == own:
			times[Benchmark] = stat.CPUTime()
		case stat.PPID == own && commands[stat.Comm] != "":
			times[commands[stat.Comm]] = stat.CPUTime()
		}
	}
	return times, nil
}

// Since is what each process used since an earlier look.
func (c CPU) Since(before CPU) CPU {
	used := CPU{}
	for name, then := range before {
		if now, ok := c[name]; ok {
			used[name] = now - then
		}
	}
	return used
}

// Add adds what was used in another time.
func (c CPU) Add(more CPU) {
	for name, seconds := range more {
		c[name] += seconds
	}
}

// MillisecondsPerCall divides what was used by the number of calls.
func (c CPU) MillisecondsPerCall(calls int) map[string]float64 {
	each := map[string]float64{}
	for name, seconds := range c {
		each[name] = 1000 * seconds / float64(calls)
	}
	return each
}

// During is what each process uses while something runs.
func During(run func() error) (CPU, time.Duration, error) {
	before, err := ReadCPU()
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	if err := run(); err != nil {
		return nil, 0, err
	}
	took := time.Since(began)
	after, err := ReadCPU()
	return after.Since(before), took, err
}

// Resident is the resident memory of a process, in bytes.
func Resident(pid int) (int, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return stat.ResidentMemory(), nil
}
