package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// InitCommand is the hidden subcommand that the supervisor runs as.
const InitCommand = "node-init"

// Running is a cluster found on the machine.
type Running struct {
	PID     int
	Dir     string
	started string
}

// Find looks for the supervisor among the machine's processes, so that neither
// a stale file nor a reused process id can mislead.
func Find() (*Running, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing the processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		if dir, ok := parseInit(string(cmdline)); ok && oneLevelDown(pid) {
			_, started := processState(pid)
			return &Running{PID: pid, Dir: dir, started: started}, nil
		}
	}
	return nil, nil
}

// oneLevelDown tells whether the process is the first of a PID namespace made
// in ours: a cluster that somebody runs in a container is deeper, and none of
// our business.
func oneLevelDown(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	return levels(string(status)) == 2
}

// levels counts the PID namespaces, from ours down, that a process has a number in.
func levels(status string) int {
	for line := range strings.Lines(status) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(numbers))
		}
	}
	return 0
}

func parseInit(cmdline string) (dir string, ok bool) {
	args := strings.Split(strings.TrimRight(cmdline, "\x00"), "\x00")
	if len(args) != 3 || args[1] != InitCommand {
		return "", false
	}
	dir = filepath.Dir(args[2])
	return dir, args[0] == filepath.Join(dir, "cluster")
}

// Alive tells whether the supervisor still runs; a zombie doesn't. While the
// kernel ends the processes below it, it counts as alive.
func (r *Running) Alive() bool {
	state, started := processState(r.PID)
	return started != "" && started == r.started && state != "Z" && state != "X"
}

// processState reads a process's state and start time; both are empty when it
// is gone.
func processState(pid int) (state, started string) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", ""
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 {
		return "", ""
	}
	return f[0], f[19]
}

// EnterArgs is the command line that runs a command inside the node.
func (r *Running) EnterArgs(command ...string) []string {
	args := []string{"nsenter", "--target", strconv.Itoa(r.PID), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}
	return append(args, command...)
}
