package rules

import (
	"errors"
	"math"
)

// Self is what a runner's process is, as its kernel says: a call's processes start as the same, and the runner's own
// walls come on top. In a sandbox with a kernel of its own, it is that kernel's word.
type Self struct {
	// User is the UID that commands run as, as the pod's user namespace counts.
	User uint32 `json:"user"`
	// Seccomp is the mode of the filter that the container's runtime set: one of the constants, empty if the kernel
	// doesn't say.
	Seccomp string `json:"seccomp,omitempty"`
	// UserNamespace says that the kernel maps UIDs: the process certainly isn't in the initial user namespace. False says
	// that every UID is mapped to itself, as it is there; a namespace that does the same looks no different from inside,
	// and gives files no more protection. Nil says that it couldn't be found out.
	UserNamespace *bool `json:"userNamespace,omitempty"`
}

// Modes of seccomp, as in /proc/PID/status.
const (
	// SeccompDisabled is no filter.
	SeccompDisabled = "Disabled"
	// SeccompStrict allows four system calls.
	SeccompStrict = "Strict"
	// SeccompFilter is a filter. What it lets through, nobody can see from inside.
	SeccompFilter = "Filter"
)

var errNotSelf = errors.New("no process has such a user or such a mode of seccomp")

// Check says why no process can be like this.
func (s *Self) Check() error {
	switch s.Seccomp {
	case "", SeccompDisabled, SeccompStrict, SeccompFilter:
	default:
		return errNotSelf
	}
	if s.User == math.MaxUint32 {
		return errNotSelf
	}
	return nil
}
