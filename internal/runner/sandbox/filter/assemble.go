package filter

import "golang.org/x/sys/unix"

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

var (
	allow  = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	notify = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF}
)

// on does something for one system call, whose number is the loaded value. What it does must end the program.
func on(number uint32, do ...unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{jumpEqual(number, 0, uint8(len(do)))}, do...)
}

// denyEach makes some system calls fail.
func denyEach(errno unix.Errno, numbers ...uint32) []unix.SockFilter {
	var f []unix.SockFilter
	for _, number := range numbers {
		f = append(f, on(number, deny(errno))...)
	}
	return f
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
