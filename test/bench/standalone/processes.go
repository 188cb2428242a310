package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/prometheus/procfs"

	"toolcall.dev/operator/test/bench/measure"
)

// The processes whose time counts, as they are named in reports.
const (
	Operator  = "operator"
	APIServer = "API server"
	Etcd      = "etcd"
)

// commands are the names that the kernel has for the children.
var commands = map[string]string{"manager": Operator, "kube-apiserver": APIServer, "etcd": Etcd}

// children are those of this process whose time counts, by their id.
func children() (map[int]string, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	own, found := os.Getpid(), map[int]string{}
	for _, p := range all {
		stat, err := p.Stat()
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
			// It has ended.
		case err != nil:
			return nil, fmt.Errorf("look for processes: %w", err)
		case stat.PPID == own && commands[stat.Comm] != "":
			found[p.PID] = commands[stat.Comm]
		}
	}
	return found, nil
}

// count has the time of the children count that were not there before: other servers have theirs.
func (s *Server) count(before map[int]string) error {
	now, err := children()
	for pid, name := range now {
		if before[pid] == "" {
			s.processes[pid] = name
		}
	}
	return err
}

// Spent is the processor time that the server's processes have used, and what the operator has written in a namespace.
func (s *Server) Spent(namespace string) (measure.Counts, error) {
	spent, err := s.audit.Count(namespace)
	if err != nil {
		return nil, err
	}
	for pid, name := range s.processes {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return nil, fmt.Errorf("read the time of process %d: %w", pid, err)
		}
		stat, err := p.Stat()
		if err != nil {
			return nil, fmt.Errorf("read the time of process %d: %w", pid, err)
		}
		spent["ms CPU of "+name] += 1000 * stat.CPUTime()
	}
	return spent, nil
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
