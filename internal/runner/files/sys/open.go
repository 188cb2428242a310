// Package sys opens and reads files by descriptors, and says why that failed.
//
// Names are opened beneath a descriptor and without following a link. An *Error has a reason that is part of the API, and says what a
// person can do. It needs openat2, and must not depend on /proc: see package files, which decides what may be opened.
package sys

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
)

const (
	// PathFlags open a name without following a link, calling a driver, or needing the right to read.
	PathFlags = unix.O_PATH | unix.O_NOFOLLOW
	// ReadFlags neither wait for the other end of a FIFO nor make a terminal this process's own.
	ReadFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	// resolveFlags keep a lookup below its directory. Links are followed by the resolver alone, never by the kernel.
	resolveFlags = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS
)

// OpenBeneath opens a path below a directory. It repeats a call that a signal interrupted, and a few times one that a
// rename elsewhere did.
func OpenBeneath(dir int, path string, flags int, mode uint32) (int, error) {
	return openHow(dir, path, &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolveFlags})
}

// OpenSameMount opens a directory in another, and fails with EXDEV where something is mounted on it. The device wouldn't
// tell: that of a bind mount can be the same.
func OpenSameMount(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	return openHow(dir, name, &unix.OpenHow{Flags: flags, Resolve: resolveFlags | unix.RESOLVE_NO_XDEV})
}

func openHow(dir int, path string, how *unix.OpenHow) (int, error) {
	for again := 0; ; again++ {
		fd, err := unix.Openat2(dir, path, how)
		if err == unix.EINTR || err == unix.EAGAIN && again < 16 {
			continue
		}
		return fd, err
	}
}

// CheckKernel refuses to work without openat2. A filter of system calls that doesn't know it answers EPERM.
var CheckKernel = sync.OnceValue(func() error {
	fd, err := OpenBeneath(unix.AT_FDCWD, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return &Error{reason.NotSupported, "File operations need the system call openat2, and the kernel refuses it (" + err.Error() +
			"): the node needs Linux 5.6 or later, and a seccomp profile that allows openat2.", err}
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	return nil
})

// OpenRoot opens an allowed directory. No link may lead to it: calls could change where it leads.
func OpenRoot(path string) (int, error) {
	return openHow(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolveFlags &^ unix.RESOLVE_BENEATH})
}

// Fstat repeats a call that a signal interrupted.
func Fstat(fd int) (st unix.Stat_t, err error) {
	for {
		if err = unix.Fstat(fd, &st); err != unix.EINTR {
			return st, err
		}
	}
}

// IsSame says that two descriptors are of one file. One of them keeps its inode from being used again.
func IsSame(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// IsRegular says that a file can be read without an effect on anything else.
func IsRegular(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }

// IsDir says that a file is a directory.
func IsDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// kernelFiles are the file systems in which a file is a switch or a view of the kernel, or of the runner itself.
var kernelFiles = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true,
	unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true, unix.SELINUX_MAGIC: true,
	unix.SMACK_MAGIC: true, unix.BPF_FS_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true, unix.EFIVARFS_MAGIC: true,
	unix.NSFS_MAGIC: true, unix.PSTOREFS_MAGIC: true, unix.BINFMTFS_MAGIC: true, unix.RDTGROUP_SUPER_MAGIC: true,
	unix.XENFS_SUPER_MAGIC: true, unix.BINDERFS_SUPER_MAGIC: true,
	0x62656570: true, // configfs
	0x19800202: true, // mqueue
	0x65735543: true, // fusectl
}

// Devices remembers the last device that isn't the kernel's own.
type Devices struct {
	known bool
	good  uint64
}

// IsKernels says that an open file is on a file system of the kernel's. One whose type can't be read counts as such.
func (d *Devices) IsKernels(fd int, st *unix.Stat_t) bool {
	if d.known && d.good == st.Dev {
		return false
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || kernelFiles[fs.Type] {
		return true
	}
	d.known, d.good = true, st.Dev
	return false
}

// Close closes what is open: negative descriptors are none.
func Close(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// ReadLink reads the link that has a name in a directory, or without a name the one that a descriptor refers to. The buffer has the
// kernel's maximum length.
func ReadLink(fd int, name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buffer)
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}
