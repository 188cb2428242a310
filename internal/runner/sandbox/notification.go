package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif: a system call that waits for an answer.
type notification struct {
	id     uint64
	pid    uint32
	flags  uint32
	number int32
	arch   uint32
	ip     uint64
	args   [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// addDescriptor is struct seccomp_notif_addfd.
type addDescriptor struct {
	id            uint64
	flags         uint32
	source        uint32
	target        uint32
	newDescriptor uint32
}

// listener is the descriptor through which the kernel asks.
type listener int

func (l listener) ioctl(request uint, arg unsafe.Pointer) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l), uintptr(request), uintptr(arg))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// receive waits for a system call.
func (l listener) receive() (notification, unix.Errno) {
	var n notification // the kernel demands zeros
	errno := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
	return n, errno
}

// isValid reports whether the system call still waits, so that what was read of its process is of that process.
func (l listener) isValid(id uint64) bool {
	errno := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id))
	runtime.KeepAlive(&id)
	return errno == 0
}

// refuse makes the system call fail.
func (l listener) refuse(id uint64, errno unix.Errno) {
	a := answer{id: id, errno: -int32(errno)}
	_ = l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) // it fails when the process is gone
}

// proceed lets the kernel carry the system call out. It reports false when the call doesn't wait any more.
func (l listener) proceed(id uint64) bool {
	a := answer{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) == 0
}

// give makes the system call return a copy of a descriptor.
func (l listener) give(id uint64, fd int, cloexec bool) unix.Errno {
	a := addDescriptor{id: id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, source: uint32(fd)}
	if cloexec {
		a.newDescriptor = unix.O_CLOEXEC
	}
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a))
}
