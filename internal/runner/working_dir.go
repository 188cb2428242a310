package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// workDir is the open directory that the process will start in. Holding it open, not by its path, is what
// makes it the one that was checked.
type workDir struct {
	file *os.File
	// owned is true when we opened it.
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
	// Searching it is all that a process needs to start in it.
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
			fmt.Sprintf("The working directory %s may not be entered: permission denied.", quote(path))}
	case errors.Is(err, unix.ENOTDIR):
		return &startError{result.WorkingDirNotFound,
			fmt.Sprintf("The working directory %s is not a directory.", quote(path))}
	default:
		return &startError{result.WorkingDirNotFound,
			fmt.Sprintf("The working directory %s can't be opened: %s.", quote(path), unwrapped(err))}
	}
}

// unwrapped is the kernel's part of an error alone.
func unwrapped(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

func (d *workDir) fd() int { return int(d.file.Fd()) }

// Close closes what we opened; a directory of the caller's stays open.
func (d *workDir) Close() {
	if d.owned {
		d.file.Close()
	}
}

// enter calls start with a name of the directory that nobody can turn into another one. The child opens
// its own /proc/self, where the number means the same directory. Without /proc our own working directory
// serves, for that moment.
func (d *workDir) enter(start func(cwd string) (int, error)) (int, error) {
	if path := "/proc/self/fd/" + strconv.Itoa(d.fd()); d.isAt(path) {
		return start(path)
	}
	return d.enterByChdir(start)
}

// enterByChdir moves the whole process there and back.
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
