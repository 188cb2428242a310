package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Notification is struct seccomp_notif: a system call that waits for an answer.
type Notification struct {
	ID     uint64
	thread uint32
	flags  uint32
	// Number is that of the system call.
	Number int32
	arch   uint32
	ip     uint64
	Args   [6]uint64
}

// Thread is the thread that waits.
func (n *Notification) Thread() Thread { return Thread(n.thread) }

// Int is an argument that the system call takes for an int.
func (n *Notification) Int(arg int) int { return int(int32(n.Args[arg])) }

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

// Listener is the descriptor through which the kernel asks.
type Listener int

func (l Listener) ioctl(request uint, arg unsafe.Pointer) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l), uintptr(request), uintptr(arg))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// Receive waits for a system call.
func (l Listener) Receive() (Notification, unix.Errno) {
	var n Notification // the kernel demands zeros
	errno := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
	return n, errno
}

// IsValid reports whether the system call still waits, so that what was read of its process is of that process.
func (l Listener) IsValid(id uint64) bool {
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id)) == 0
}

// Refuse makes the system call fail.
func (l Listener) Refuse(id uint64, errno unix.Errno) { l.Finish(id, 0, errno) }

// Finish makes the system call return a value, or fail. It reports false when the call doesn't wait any more.
func (l Listener) Finish(id uint64, value int64, errno unix.Errno) bool {
	a := answer{id: id, value: value, errno: -int32(errno)}
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) == 0
}

// Proceed lets the kernel carry the system call out. It reports false when the call doesn't wait any more.
func (l Listener) Proceed(id uint64) bool {
	a := answer{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) == 0
}

// Give makes the system call return a copy of a descriptor. The calling goroutine must be locked to its thread.
//
// A signal must not interrupt it: the kernel would take the descriptor back, but not the answer, and the process would
// get 0 for a descriptor. The runtime sends such signals to its threads.
//
// Before Linux 5.14 it takes two steps. The process keeps the copy without knowing it if a signal interrupts its call between
// them; the call then counts as not answered.
func (l Listener) Give(id uint64, fd int, cloexec bool) unix.Errno {
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return ErrnoOf(err, unix.EINVAL)
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	a := addDescriptor{id: id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, source: uint32(fd)}
	if cloexec {
		a.newDescriptor = unix.O_CLOEXEC
	}
	errno := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a))
	if errno != unix.EINVAL {
		return errno
	}
	a.flags = 0
	given, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l), unix.SECCOMP_IOCTL_NOTIF_ADDFD, uintptr(unsafe.Pointer(&a)))
	if errno == 0 && !l.Finish(id, int64(given), 0) {
		errno = unix.ENOENT
	}
	return errno
}

// Close ends the asking: the kernel answers with ENOSYS.
func (l Listener) Close() { unix.Close(int(l)) }

// AddsDescriptors reports whether the kernel can answer with descriptors.
func (l Listener) AddsDescriptors() bool {
	// No call waits under this number.
	none := addDescriptor{id: ^uint64(0), source: uint32(l)}
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&none)) == unix.ENOENT
}
