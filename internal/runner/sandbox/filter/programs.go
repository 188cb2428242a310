package filter

import "golang.org/x/sys/unix"

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
	f = append(f, denyEach(unix.EPERM,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
		// Another root or namespace would make paths mean something else to the gate.
		unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_BY_HANDLE_AT)...)
	// clone3 hides its flags; C libraries fall back to clone.
	f = append(f, denyEach(unix.ENOSYS, unix.SYS_CLONE3)...)
	// With CLONE_PARENT, a child of the command would be the supervisor's.
	f = append(f, on(unix.SYS_CLONE, load(offArg0), unlessSet(unix.CLONE_NEWUSER|unix.CLONE_PTRACE|unix.CLONE_PARENT|leaves), deny(unix.EPERM), allow)...)
	f = append(f, on(unix.SYS_UNSHARE, load(offArg0), unlessSet(unix.CLONE_NEWUSER), deny(unix.EPERM), allow)...)
	f = append(f, on(unix.SYS_SECCOMP, load(offArg1), unlessSet(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER), deny(unix.EBUSY), allow)...)
	// A file in memory lies outside Landlock. One that can't be executed may be made; the gate makes one of the others.
	return append(f, on(unix.SYS_MEMFD_CREATE, load(offArg1),
		unlessSet(unix.MFD_EXEC), deny(unix.EACCES),
		unlessSet(unix.MFD_NOEXEC_SEAL), allow,
		ask)...)
}
