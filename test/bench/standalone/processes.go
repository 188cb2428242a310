package standalone

import (
	"fmt"

	"github.com/prometheus/procfs"

	"toolcall.dev/operator/test/bench/measure"
)

// The processes whose time counts, as they are named in reports.
const (
	Operator  = "operator"
	APIServer = "API server"
	Etcd      = "etcd"
)

// Spent is the processor time that the server's processes have used, and what the operator has written in a namespace.
func (s *Server) Spent(namespace string) (measure.Counts, error) {
	spent, err := s.audit.Count(namespace)
	if err != nil {
		return nil, err
	}
	for pid, name := range s.processes {
		stat, err := statOf(pid)
		if err != nil {
			return nil, err
		}
		spent["ms CPU of "+name] += 1000 * stat.CPUTime()
	}
	return spent, nil
}

// Resident is the resident memory of a process, in bytes.
func Resident(pid int) (int, error) {
	stat, err := statOf(pid)
	return stat.ResidentMemory(), err
}

func statOf(pid int) (stat procfs.ProcStat, err error) {
	p, err := procfs.NewProc(pid)
	if err == nil {
		stat, err = p.Stat()
	}
	if err != nil {
		return stat, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return stat, nil
}
