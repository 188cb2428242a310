package runner

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both machines are little-endian: an argument's low half comes first, and
// it is all that the kernel looks at of an int such as a socket's family.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
)

// foreignBit marks system calls of the x32 ABI on amd64; no other machine has numbers that high.
const foreignBit = 0x40000000

// networkFilter lets Unix sockets be made and nothing else, and refuses the ways around it: io_uring, which
// makes sockets without socket(2), and system calls by another ABI, whose numbers mean something else.
//
// What it can't refuse: sockets that another process hands over through a Unix socket, what a program that
// listens on one does on behalf of the command, and a process of the same user without the filter that lets
// itself be traced. The supervisor is no such process once it has called Harden.
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

// jumpEqual and jumpAtLeast skip a number of instructions depending on what was loaded.
func jumpEqual(k uint32, then, otherwise uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: then, Jf: otherwise, K: k}
}

func jumpAtLeast(k uint32, then, otherwise uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: then, Jf: otherwise, K: k}
}

func deny(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// denyNetwork puts the filter on the calling thread and on what it starts, for good. It needs no privilege,
// because the thread gives up gaining any.
func denyNetwork(arch uint32) error {
	if arch == 0 {
		return errors.New("there is no filter for this kind of machine")
	}
	filter := networkFilter(arch)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("installing the filter: %w", errno)
	}
	return nil
}
