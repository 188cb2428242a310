package sandbox

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// target is a thread whose system call waits.
type target int

// proc is a path in the thread's directory of /proc.
func (t target) proc(name string) string { return "/proc/" + strconv.Itoa(int(t)) + "/" + name }

const (
	pageSize   = 4096
	maxPath    = 4096
	maxName    = 256
	maxLinks   = 40
	procSuper  = unix.PROC_SUPER_MAGIC
	procRootID = 1
)

// read fills b from the thread's memory, or as much of it as there is.
func (t target) read(b []byte, at uint64) (int, error) {
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}
	return unix.ProcessVMReadv(int(t), local, remote, 0)
}

// text reads a string that ends with a zero byte. It never reads over the end of a page at once, since the next one may
// not be there.
func (t target) text(at uint64, limit int) (string, unix.Errno) {
	var text []byte
	buffer := make([]byte, 256)
	for len(text) < limit {
		part := buffer[:min(len(buffer), pageSize-int(at%pageSize))]
		n, err := t.read(part, at)
		if err != nil || n == 0 {
			return "", errnoOf(err, unix.EFAULT)
		}
		if end := bytes.IndexByte(part[:n], 0); end >= 0 {
			return string(append(text, part[:end]...)), 0
		}
		text = append(text, part[:n]...)
		at += uint64(n)
	}
	return "", unix.ENAMETOOLONG
}

// arguments reads the first arguments of a list of pointers; fewer if there are fewer.
func (t target) arguments(at uint64, count int) []string {
	var args []string
	pointer := make([]byte, 8)
	for range count {
		if n, err := t.read(pointer, at); err != nil || n < len(pointer) {
			return args
		}
		to := binary.LittleEndian.Uint64(pointer)
		if to == 0 {
			return args
		}
		arg, errno := t.text(to, maxName)
		if errno == unix.ENAMETOOLONG {
			return append(args, tooLong)
		}
		if errno != 0 {
			return args
		}
		args = append(args, arg)
		at += uint64(len(pointer))
	}
	return args
}

// tooLong stands for an argument that is longer than any name.
const tooLong = "\x00"

// arguments of a process that has just been started, from /proc: nobody else can have changed them yet.
func startedArguments(pid int, count int) []string {
	f, err := os.Open(target(pid).proc("cmdline"))
	if err != nil {
		return nil
	}
	defer f.Close()
	start := make([]byte, 2*maxName)
	n, _ := f.Read(start)
	// Each argument ends with a zero byte.
	args := strings.Split(strings.TrimSuffix(string(start[:n]), "\x00"), "\x00")
	for i, arg := range args {
		if len(arg) >= maxName || n == len(start) && i == len(args)-1 {
			args[i] = tooLong
		}
	}
	return args[:min(len(args), count)]
}

func errnoOf(err error, otherwise unix.Errno) unix.Errno {
	if errno, ok := err.(unix.Errno); ok { //nolint:errorlint // system calls return a bare Errno
		return errno
	}
	return otherwise
}

// open opens the file that an execveat of the thread would execute, as the kernel resolves it. It never gets a file of
// this process, to which /proc/self would lead.
func (t target) open(p *programs, dirfd int, path string, flags int) (*openFile, unix.Errno) {
	fd, errno := t.openFD(dirfd, path, flags)
	if errno != 0 {
		return nil, errno
	}
	f, err := p.identify(fd)
	if err != nil {
		return nil, errnoOf(err, unix.EACCES)
	}
	return f, 0
}

func (t target) openFD(dirfd int, path string, flags int) (int, unix.Errno) {
	if path == "" && flags&unix.AT_EMPTY_PATH == 0 {
		return -1, unix.ENOENT
	}
	follow := flags&unix.AT_SYMLINK_NOFOLLOW == 0
	if follow && strings.HasPrefix(path, "/") {
		// Within the root's file system nothing leads to /proc/self.
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS}
		if fd, err := unix.Openat2(unix.AT_FDCWD, path, &how); err == nil {
			return fd, 0
		}
	}
	base, errno := t.base(dirfd, path)
	if errno != 0 || path == "" {
		return base, errno
	}
	w := walk{target: t, at: base}
	return w.to(path, follow)
}

// base is the directory in which a path starts, or the file itself for an empty path.
func (t target) base(dirfd int, path string) (int, unix.Errno) {
	from := "/"
	switch {
	case strings.HasPrefix(path, "/"):
	case dirfd == unix.AT_FDCWD:
		from = t.proc("cwd")
	default:
		from = t.proc("fd/" + strconv.Itoa(dirfd))
	}
	fd, err := unix.Open(from, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && from != "/" {
		return -1, unix.EBADF
	}
	return fd, errnoOf(err, 0)
}

func isOnProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) != nil || fs.Type == procSuper
}

// walk resolves a path step by step, with /proc/self as the target sees it.
type walk struct {
	target target
	// at is the open directory where the walk is.
	at    int
	links int
}

// to walks a path and returns what it leads to, open. The walk is over then.
func (w *walk) to(path string, follow bool) (int, unix.Errno) {
	for rest := path; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" || name == "." {
			continue
		}
		fd, err := unix.Openat(w.at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			unix.Close(w.at)
			return -1, errnoOf(err, unix.EACCES)
		}
		if isLink(fd) && (follow || rest != "") {
			unix.Close(fd)
			if rest, err = w.link(name, rest); err != nil {
				unix.Close(w.at)
				return -1, errnoOf(err, unix.EACCES)
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

// link follows a link in the directory where the walk is, and returns the path that is left.
func (w *walk) link(name, rest string) (string, error) {
	if w.links++; w.links > maxLinks {
		return "", unix.ELOOP
	}
	onProc := isOnProc(w.at)
	if onProc {
		var st unix.Stat_t
		isRoot := unix.Fstat(w.at, &st) == nil && st.Ino == procRootID
		own := strconv.Itoa(int(w.target))
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
	text := make([]byte, maxPath)
	n, err := unix.Readlinkat(w.at, name, text)
	if err != nil {
		return "", err
	}
	to := string(text[:n])
	if strings.HasPrefix(to, "/") {
		err = w.replace(unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0))
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
