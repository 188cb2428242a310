package kernel

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Open opens what a path leads to, as the kernel resolves it for an execveat of the thread: from the thread's root and directory. It
// never gets a file of this process, to which /proc/self would lead.
func (t Thread) Open(dirfd int, path string, flags int) (int, unix.Errno) {
	if path == "" && flags&unix.AT_EMPTY_PATH == 0 {
		return -1, unix.ENOENT
	}
	root, err := unix.Open(t.Proc("root"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, ErrnoOf(err, unix.EACCES)
	}
	defer unix.Close(root)
	follow := flags&unix.AT_SYMLINK_NOFOLLOW == 0
	if follow && strings.HasPrefix(path, "/") {
		// Within the root's file system nothing leads to /proc/self.
		how := unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
		}
		if fd, err := unix.Openat2(root, path, &how); err == nil {
			return fd, 0
		}
	}
	base, errno := t.base(root, dirfd, path)
	if errno != 0 || path == "" {
		return base, errno
	}
	w := walk{thread: t, root: root, at: base}
	return w.to(path, follow)
}

// base is the directory in which a path starts, or the file itself for an empty path.
func (t Thread) base(root, dirfd int, path string) (int, unix.Errno) {
	var from string
	switch {
	case strings.HasPrefix(path, "/"):
		fd, err := duplicate(root)
		return fd, ErrnoOf(err, 0)
	case dirfd == unix.AT_FDCWD:
		from = t.Proc("cwd")
	default:
		from = t.Proc("fd/" + strconv.Itoa(dirfd))
	}
	fd, err := unix.Open(from, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return -1, unix.EBADF
	}
	return fd, ErrnoOf(err, 0)
}

func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// procRoot is the inode of the root of /proc.
const procRoot = 1

func isOnProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) != nil || fs.Type == unix.PROC_SUPER_MAGIC
}

// walk resolves a path step by step, with /proc/self as the thread sees it.
type walk struct {
	thread Thread
	// root is the thread's, above which nothing leads, at the directory where the walk is. Both are open.
	root, at int
	links    int
}

// to walks a path and returns what it leads to, open. The walk is over then.
func (w *walk) to(path string, follow bool) (int, unix.Errno) {
	for rest := path; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" || name == "." || name == ".." && isSameFile(w.at, w.root) {
			continue
		}
		fd, err := unix.Openat(w.at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			unix.Close(w.at)
			return -1, ErrnoOf(err, unix.EACCES)
		}
		if isLink(fd) && (follow || rest != "") {
			unix.Close(fd)
			if rest, err = w.link(name, rest); err != nil {
				unix.Close(w.at)
				return -1, ErrnoOf(err, unix.EACCES)
			}
			continue
		}
		unix.Close(w.at)
		w.at = fd
	}
	return w.at, 0
}

func isLink(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

func isSameFile(a, b int) bool {
	var one, other unix.Stat_t
	return unix.Fstat(a, &one) == nil && unix.Fstat(b, &other) == nil && one.Dev == other.Dev && one.Ino == other.Ino
}

// link follows a link in the directory where the walk is, and returns the path that is left.
func (w *walk) link(name, rest string) (string, error) {
	if w.links++; w.links > MaxLinks {
		return "", unix.ELOOP
	}
	onProc := isOnProc(w.at)
	if onProc {
		var st unix.Stat_t
		isRoot := unix.Fstat(w.at, &st) == nil && st.Ino == procRoot
		own := strconv.Itoa(int(w.thread))
		switch {
		case isRoot && name == "self":
			return own + "/" + rest, nil
		case isRoot && name == "thread-self":
			return own + "/task/" + own + "/" + rest, nil
		case !isRoot:
			// The text of such a link isn't where it leads.
			return rest, w.replace(unix.Openat(w.at, name, unix.O_PATH|unix.O_CLOEXEC, 0))
		}
	}
	text := make([]byte, MaxPath)
	n, err := unix.Readlinkat(w.at, name, text)
	if err != nil {
		return "", err
	}
	to := string(text[:n])
	if strings.HasPrefix(to, "/") {
		err = w.replace(duplicate(w.root))
	}
	return to + "/" + rest, err
}

// replace goes on from another directory.
func (w *walk) replace(fd int, err error) error {
	if err == nil {
		unix.Close(w.at)
		w.at = fd
	}
	return err
}
