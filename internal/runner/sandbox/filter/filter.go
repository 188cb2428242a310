// Package filter is the seccomp filter of a call: which system calls the kernel refuses, and which it asks this process about. One filter
// holds all that a call needs, because a process can have one listener only.
//
// The filter sees numbers and arguments, never memory. What it can't tell, the listener's owner looks at.
package filter

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// Options are the parts of the filter that a call needs.
type Options uint32

// Options of a filter.
const (
	// Programs and Network hand what is executed, and what is connected to, to the gate.
	Programs Options = 1 << iota
	Network
	// DenyNetwork makes all sockets but Unix sockets fail. Nothing of the network is handed to the gate then.
	DenyNetwork
	// UDP leaves UDP to the kernel, as far as Network could hold it.
	UDP
	// Traced is Programs where nobody can be asked: it keeps processes within their trace.
	Traced
	// AllSockets hands Unix sockets to the gate too.
	AllSockets
	// NoTruncate refuses to empty files in the ways that old versions of Landlock don't see.
	NoTruncate
)

// Has reports whether one of some options is set.
func (o Options) Has(some Options) bool { return o&some != 0 }

// Asks reports whether the filter has a listener.
func (o Options) Asks() bool { return o.Has(Programs | Network) }

// foreignBit marks system calls of the x32 ABI on amd64. No other numbers are that high.
const foreignBit = 0x40000000

// ioprioWhoUser has ioprio_set change all processes of a user.
const ioprioWhoUser = 3

// program makes the filter for a call. Whatever the options, it refuses system calls of another ABI, whose numbers have
// another meaning, and io_uring, which works without system calls.
func program(arch uint32, o Options) []unix.SockFilter {
	f := []unix.SockFilter{
		load(offArch),
		jumpEqual(arch, 1, 0),
		deny(unix.ENOSYS),
		load(offNumber),
		jumpAtLeast(foreignBit, 0, 1),
		deny(unix.ENOSYS),
	}
	f = append(f, denyEach(unix.ENOSYS, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER)...)
	// Limits and priorities are a process's own: the supervisor has the same user.
	f = append(f, on(unix.SYS_PRLIMIT64,
		load(offArg0), jumpEqual(0, 0, 1), allow,
		load(offArg2), jumpEqual(0, 0, 3),
		load(offArg2High), jumpEqual(0, 0, 1), allow,
		deny(unix.EPERM))...)
	f = append(f, on(unix.SYS_SETPRIORITY,
		load(offArg0), jumpEqual(unix.PRIO_USER, 0, 1), deny(unix.EPERM),
		load(offArg1), jumpEqual(0, 0, 1), allow, deny(unix.EPERM))...)
	f = append(f, on(unix.SYS_IOPRIO_SET,
		load(offArg0), jumpEqual(ioprioWhoUser, 0, 1), deny(unix.EPERM),
		load(offArg1), jumpEqual(0, 0, 1), allow, deny(unix.EPERM))...)
	for _, number := range []uint32{unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR} {
		f = append(f, on(number, load(offArg0), jumpEqual(0, 0, 1), allow, deny(unix.EPERM))...)
	}
	if o.Has(Programs | Traced | Network) {
		f = append(f, lookFilter()...)
	}
	if o.Has(Programs | Traced) {
		f = append(f, programFilter(o.Has(Traced))...)
	}
	if o.Has(NoTruncate) {
		f = append(f, truncateFilter()...)
	}
	if o.Has(DenyNetwork | Network) {
		// The kernel would look up a name for whoever asks for a key, from the node.
		f = append(f, denyEach(unix.EPERM, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL)...)
	}
	switch {
	case o.Has(DenyNetwork):
		f = append(f, offlineFilter()...)
	case o.Has(Network):
		f = append(f, networkFilter(o.Has(UDP), o.Has(AllSockets))...)
	}
	return append(f, allow)
}

// lookFilter keeps processes such that they can be looked at.
func lookFilter() []unix.SockFilter {
	// A page that its owner provides would hold up the gate.
	f := denyEach(unix.ENOSYS, unix.SYS_USERFAULTFD)
	// An undumpable process can't be looked at: say yes, and do nothing.
	return append(f, on(unix.SYS_PRCTL, load(offArg0), jumpEqual(unix.PR_SET_DUMPABLE, 0, 1), deny(0), allow)...)
}

// Install sets the filter on the calling thread and on what that starts, permanently. It needs no privilege, because the
// thread gives up gaining privileges. If the filter asks, it returns the listener, and -1 otherwise.
func Install(o Options) (listener int, err error) {
	return install(program(auditArch, o), o.Asks())
}

// Try sets a filter on the calling thread that permits everything, to find out whether that is possible, with a listener or without.
func Try(asks bool) (listener int, err error) {
	return install([]unix.SockFilter{allow}, asks)
}

func install(program []unix.SockFilter, asks bool) (listener int, err error) {
	if err := kernel.GiveUpPrivileges(); err != nil {
		return -1, err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	var flags uintptr
	if asks {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("install the filter: %w", errno)
	}
	if !asks {
		return -1, nil
	}
	return int(fd), nil
}
