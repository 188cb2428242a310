package sandbox

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both architectures are little-endian, so the low half of an argument comes first. The
// kernel uses no more than that of an int such as a socket's family.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
	offArg1   = 24
	offArg2   = 32
	offArg3   = 40
	offArg4   = 48
	// These are the upper halves of arguments that are addresses.
	offArg2High = 36
	offArg4High = 52
)

// foreignBit marks system calls of the x32 ABI on amd64. No other numbers are that high.
const foreignBit = 0x40000000

// ioprioWhoUser has ioprio_set change all processes of a user.
const ioprioWhoUser = 3

// filterOptions are the parts of the filter that a call needs.
type filterOptions struct {
	// programs and network hand what is executed, and what is connected to, to the gate.
	programs, network bool
	denyNetwork       bool
	// udp leaves UDP to the kernel, as far as the network's part could hold it.
	udp bool
	// traced is programs where nobody can be asked: it keeps processes within their trace.
	traced bool
	// allSockets hands Unix sockets to the gate too.
	allSockets bool
	// noTruncate refuses to empty files in the ways that old versions of Landlock don't see.
	noTruncate bool
}

// needsGate reports whether the filter asks a listener.
func (o filterOptions) needsGate() bool { return o.programs || o.network }

// filter makes the program for a call. Whatever the options, it refuses system calls of another ABI, whose numbers have
// another meaning, and io_uring, which works without system calls.
func filter(arch uint32, o filterOptions) []unix.SockFilter {
	f := []unix.SockFilter{
		load(offArch),
		jumpEqual(arch, 1, 0),
		deny(unix.ENOSYS),
		load(offNumber),
		jumpAtLeast(foreignBit, 0, 1),
		deny(unix.ENOSYS),
	}
	for _, number := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		f = append(f, on(number, deny(unix.ENOSYS))...)
	}
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
	if o.programs || o.traced {
		f = append(f, programFilter(o.traced)...)
	}
	if o.noTruncate {
		f = append(f, truncateFilter()...)
	}
	switch {
	case o.denyNetwork:
		f = append(f, networkFilter()...)
	case o.network:
		f = append(f, networkGateFilter(o.udp, o.allSockets)...)
	}
	return append(f, allow)
}

// programFilter hands what is executed to the gate, unless it is looked at in a trace alone, and refuses what would get around
// both.
func programFilter(traced bool) []unix.SockFilter {
	var f []unix.SockFilter
	ask, leaves := notify, uint32(0)
	if traced {
		ask, leaves = allow, unix.CLONE_UNTRACED
	}
	for _, number := range []uint32{unix.SYS_EXECVE, unix.SYS_EXECVEAT} {
		f = append(f, on(number, ask)...)
	}
	for _, number := range []uint32{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
		// Another root or namespace would make paths mean something else to the gate.
		unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_BY_HANDLE_AT,
	} {
		f = append(f, on(number, deny(unix.EPERM))...)
	}
	// A page that its owner provides would hold up the gate. clone3 hides its flags; C libraries fall back to clone.
	for _, number := range []uint32{unix.SYS_USERFAULTFD, unix.SYS_CLONE3} {
		f = append(f, on(number, deny(unix.ENOSYS))...)
	}
	// With CLONE_PARENT, a child of the command would be the supervisor's.
	f = append(f, on(unix.SYS_CLONE, load(offArg0), unlessSet(unix.CLONE_NEWUSER|unix.CLONE_PTRACE|unix.CLONE_PARENT|leaves), deny(unix.EPERM), allow)...)
	f = append(f, on(unix.SYS_UNSHARE, load(offArg0), unlessSet(unix.CLONE_NEWUSER), deny(unix.EPERM), allow)...)
	// An undumpable process can't be looked at: say yes, and do nothing.
	f = append(f, on(unix.SYS_PRCTL, load(offArg0), jumpEqual(unix.PR_SET_DUMPABLE, 0, 1), deny(0), allow)...)
	f = append(f, on(unix.SYS_SECCOMP, load(offArg1), unlessSet(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER), deny(unix.EBUSY), allow)...)
	// A file in memory lies outside Landlock. One that can't be executed may be made; the gate makes one of the others.
	return append(f, on(unix.SYS_MEMFD_CREATE, load(offArg1),
		unlessSet(unix.MFD_EXEC), deny(unix.EACCES),
		unlessSet(unix.MFD_NOEXEC_SEAL), allow,
		ask)...)
}

// truncateFilter refuses what empties a file without opening it to write: Landlock before Linux 6.2 asks about writing only.
// openat2 has its flags in memory; programs do without it.
func truncateFilter() []unix.SockFilter {
	f := append(on(unix.SYS_TRUNCATE, deny(unix.EACCES)), on(unix.SYS_OPENAT2, deny(unix.ENOSYS))...)
	f = append(f, on(unix.SYS_OPEN_BY_HANDLE_AT, deny(unix.EPERM))...)
	for _, open := range opens {
		f = append(f, on(open.number, load(open.flags),
			ifSet(unix.O_TRUNC), allow,
			and(unix.O_ACCMODE), jumpEqual(unix.O_WRONLY, 1, 0), jumpEqual(unix.O_RDWR, 0, 1), allow, deny(unix.EACCES))...)
	}
	return f
}

// networkFilter allows Unix sockets only.
//
// It can't refuse sockets that another process passes through a Unix socket, what a server on a Unix socket does for the
// command, and tracing a process of the same user that has no filter.
func networkFilter() []unix.SockFilter {
	return []unix.SockFilter{
		jumpEqual(unix.SYS_SOCKET, 1, 0),
		jumpEqual(unix.SYS_SOCKETPAIR, 0, 3),
		load(offArg0),
		jumpEqual(unix.AF_UNIX, 1, 0),
		deny(unix.EACCES),
	}
}

var (
	allow  = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	notify = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF}
)

// on does something for one system call, whose number is the loaded value. What it does must end the program.
func on(number uint32, do ...unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{jumpEqual(number, 0, uint8(len(do)))}, do...)
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jumpEqual and jumpAtLeast skip instructions, depending on the loaded value.
func jumpEqual(k uint32, then, otherwise uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: then, Jf: otherwise, K: k}
}

func jumpAtLeast(k uint32, then, otherwise uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: then, Jf: otherwise, K: k}
}

// and keeps bits of the loaded value.
func and(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: k}
}

// unlessSet skips the next instruction when the loaded value lacks all of the bits.
func unlessSet(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: k}
}

// ifSet skips the next instruction when the loaded value has one of the bits.
func ifSet(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 1, K: k}
}

func deny(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// open is a system call that opens a file, and where its flags are.
type open struct{ number, flags uint32 }

var errNoFilter = errors.New("there is no filter for this architecture")

// install sets a filter on the calling thread and on what that starts, permanently. It needs no privilege, because the
// thread gives up gaining privileges. With SECCOMP_FILTER_FLAG_NEW_LISTENER it returns the listener.
func install(program []unix.SockFilter, flags uintptr) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("give up new privileges: %w", err)
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("install the filter: %w", errno)
	}
	return int(fd), nil
}

// DenyNetwork makes all sockets but Unix sockets fail, for the calling thread and what it starts.
func DenyNetwork() error { return denyNetwork(auditArch) }

func denyNetwork(arch uint32) error {
	if arch == 0 {
		return errNoFilter
	}
	_, err := install(filter(arch, filterOptions{denyNetwork: true}), 0)
	return err
}
