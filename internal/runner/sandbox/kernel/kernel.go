// Package kernel is what of the Linux kernel holds a call: Landlock's domains, the notifications of a seccomp filter, ptrace, and a look
// into the process whose system call waits. It decides nothing: what may be granted, answered or run is its callers' business.
package kernel

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// GiveUpPrivileges keeps the calling thread, and what it starts, from gaining privileges by executing a program. Without that, nobody but
// root may restrict itself.
func GiveUpPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	return nil
}

// ErrnoOf returns the number of a system call's error. For nil, and for an error that isn't the kernel's, it returns otherwise.
func ErrnoOf(err error, otherwise unix.Errno) unix.Errno {
	if errno, ok := err.(unix.Errno); ok { //nolint:errorlint // system calls return a bare Errno
		return errno
	}
	return otherwise
}

// PassedFDs are the descriptors that came with a message over a socket.
func PassedFDs(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&messages[0])
}

// FDPath is the path by which this process reaches what it has open.
func FDPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
