package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// workDir is the directory in which the process starts. It is kept open, since its path may lead elsewhere later.
type workDir struct {
	file *os.File
	// owned says that Run opened it.
	owned bool
}

func openDir(cmd *Command) (*workDir, error) {
	d := &workDir{file: cmd.DirFD}
	if d.file == nil {
		fd, err := unix.Open(cmd.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, dirError(cmd.Dir, err)
		}
		d = &workDir{file: os.NewFile(uintptr(fd), cmd.Dir), owned: true}
	}
	// A process that starts in the directory needs the right to search it.
	if err := unix.Faccessat(d.fd(), ".", unix.X_OK, 0); err != nil {
		defer d.Close()
		return nil, dirError(d.file.Name(), err)
	}
	return d, nil
}

func dirError(path string, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return &startError{result.WorkingDirNotAllowed,
			fmt.Sprintf("The working directory %s can't be entered: permission denied.", quote(path))}
	case errors.Is(err, unix.ENOTDIR):
		return &startError{result.WorkingDirNotFound,
			fmt.Sprintf("The working directory %s is not a directory.", quote(path))}
	default:
		return &startError{result.WorkingDirNotFound,
			fmt.Sprintf("The working directory %s can't be opened: %s.", quote(path), unwrapped(err))}
	}
}

// unwrapped returns the kernel's message of an error.
func unwrapped(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

func (d *workDir) fd() int { return int(d.file.Fd()) }

// Close closes a directory that Run opened.
func (d *workDir) Close() {
	if d.owned {
		d.file.Close()
	}
}

// enter calls start with a path of the directory that can't be made to lead elsewhere: the child's /proc/self, in which
// the descriptor is that of the directory. Without /proc it uses enterByChdir.
func (d *workDir) enter(start func(cwd string) (int, error)) (int, error) {
	if path := "/proc/self/fd/" + strconv.Itoa(d.fd()); d.isAt(path) {
		return start(path)
	}
	return d.enterByChdir(start)
}

// enterByChdir changes the working directory of this process during the start.
func (d *workDir) enterByChdir(start func(cwd string) (int, error)) (int, error) {
	before, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(before)
	if err := unix.Fchdir(d.fd()); err != nil {
		return 0, dirError(d.file.Name(), err)
	}
	defer func() { _ = unix.Fchdir(before) }()
	return start("")
}

// isAt reports whether path leads to the directory.
func (d *workDir) isAt(path string) bool {
	var want, got unix.Stat_t
	return unix.Fstat(d.fd(), &want) == nil && unix.Stat(path, &got) == nil &&
		want.Dev == got.Dev && want.Ino == got.Ino
}
