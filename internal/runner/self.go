package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// self is what this process is. Threads that have set filters on themselves don't change it: the kernel says it of the
// first thread, which never does.
var self = sync.OnceValue(func() *rules.Self { return readSelf("/proc/self") })

// readSelf reads what the kernel says of a process in a directory of /proc.
func readSelf(dir string) *rules.Self {
	s := &rules.Self{User: uint32(os.Geteuid())}
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	s.Seccomp = seccompMode(status)
	if mapped, err := os.ReadFile(filepath.Join(dir, "uid_map")); err == nil {
		s.UserNamespace = new(!isIdentity(mapped))
	}
	return s
}

// seccompMode is the mode in a status of /proc; empty for one that isn't known.
func seccompMode(status []byte) string {
	switch proc.StatusField(status, "Seccomp") {
	case "0":
		return rules.SeccompDisabled
	case "1":
		return rules.SeccompStrict
	case "2":
		return rules.SeccompFilter
	default:
		return ""
	}
}

// isIdentity says that a uid_map maps every UID to itself, as that of the initial user namespace does.
func isIdentity(mapped []byte) bool {
	fields := bytes.Fields(mapped)
	return len(fields) == 3 && string(fields[0]) == "0" && string(fields[1]) == "0" && string(fields[2]) == "4294967295"
}

// reportSelf adds to the outcome of a command that was started what it started as, and what network it had.
func (r *run) reportSelf(o *result.Outcome) {
	if o.Isolation == nil {
		o.Isolation = &result.Isolation{}
	}
	o.Isolation.Self, o.Isolation.Network = self(), result.NetworkPod
	switch {
	case r.cmd.DenyNetwork:
		o.Isolation.Network, o.Isolation.NoNetwork = result.NetworkNone, r.noNetwork
	case r.connections != nil:
		o.Isolation.Network = result.NetworkHeld
	}
}
