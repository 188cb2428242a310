package runner

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
)

// foreignBit marks system calls of the x32 ABI on amd64. No other numbers are that high.
const foreignBit = 0x40000000

// networkFilter allows Unix sockets only. It refuses what would get around that: io_uring, which makes sockets without
// socket(2), and system calls of another ABI, whose numbers have another meaning.
//
// It can't refuse sockets that another process passes through a Unix socket, what a server on a Unix socket does for the
// command, and tracing a process of the same user that has no filter. The supervisor can't be traced after Harden.
func networkFilter(arch uint32) []unix.SockFilter {
	f := []unix.SockFilter{
		load(offArch),
		jumpEqual(arch, 1, 0),
		deny(unix.ENOSYS),
		load(offNumber),
		jumpAtLeast(foreignBit, 0, 1),
		deny(unix.ENOSYS),
	}
	for _, number := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		f = append(f, jumpEqual(number, 0, 1), deny(unix.ENOSYS))
	}
	return append(f,
		jumpEqual(unix.SYS_SOCKET, 1, 0),
		jumpEqual(unix.SYS_SOCKETPAIR, 0, 3),
		load(offArg0),
		jumpEqual(unix.AF_UNIX, 1, 0),
		deny(unix.EACCES),
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	)
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

func deny(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// denyNetwork installs the filter on the calling thread and on what that starts, permanently. It needs no privilege,
// because the thread gives up gaining privileges.
func denyNetwork(arch uint32) error {
	if arch == 0 {
		return errors.New("there is no filter for this architecture")
	}
	filter := networkFilter(arch)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("install the filter: %w", errno)
	}
	return nil
}
