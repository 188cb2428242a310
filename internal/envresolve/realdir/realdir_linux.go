package realdir

import (
	"os"
	"path"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// pathFlags open a name without following a link, and without the right to read.
const pathFlags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// OpenDir resolves the directory and opens it. It returns a handle that is only good for fchdir and for looking up names,
// and the path with links resolved. If the rules refuse the directory, the error is an *envresolve.DirError. The caller
// closes the handle.
func OpenDir(req envresolve.DirRequest) (*os.File, string, error) {
	t, err := newTree()
	if err != nil {
		return nil, "", err
	}
	defer t.close()
	dir, err := envresolve.ResolveDir(t, req)
	if err != nil {
		return nil, "", err
	}
	// The tree closes its own handle.
	fd, err := openat(t.dirs[dir], ".", pathFlags|unix.O_DIRECTORY)
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), dir, nil
}

// tree is the part of the file system that was looked up: open directories and entries, by path.
type tree struct {
	dirs    map[string]int
	entries map[string]envresolve.Entry
}

func newTree() (*tree, error) {
	root, err := openat(unix.AT_FDCWD, "/", pathFlags|unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	return &tree{dirs: map[string]int{"/": root}, entries: map[string]envresolve.Entry{}}, nil
}

func (t *tree) close() {
	for _, fd := range t.dirs {
		_ = unix.Close(fd)
	}
}

// Lookup implements envresolve.FS.
func (t *tree) Lookup(name string) (envresolve.Entry, error) {
	if entry, ok := t.entries[name]; ok {
		return entry, nil
	}
	parent, ok := t.dirs[path.Dir(name)]
	if !ok {
		return envresolve.Entry{}, unix.ENOENT
	}
	fd, err := openat(parent, path.Base(name), pathFlags)
	if err != nil {
		return envresolve.Entry{}, err
	}
	entry, err := examine(fd)
	if err == nil && entry.Kind == envresolve.KindDirectory {
		t.dirs[name] = fd
	} else {
		_ = unix.Close(fd)
	}
	if err == nil {
		t.entries[name] = entry
	}
	return entry, err
}

// Enter implements envresolve.FS. Looking up "." needs the same right as starting in the directory.
func (t *tree) Enter(name string) error {
	fd, err := openat(t.dirs[name], ".", pathFlags|unix.O_DIRECTORY)
	if err != nil {
		return &os.PathError{Op: "enter", Path: name, Err: err}
	}
	return unix.Close(fd)
}

// examine returns the entry of an open name.
func examine(fd int) (envresolve.Entry, error) {
	stat, err := sys.Fstat(fd)
	if err != nil {
		return envresolve.Entry{}, err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return envresolve.Entry{Kind: envresolve.KindDirectory}, nil
	case unix.S_IFLNK:
		target, err := sys.ReadLink(fd, "")
		return envresolve.Entry{Kind: envresolve.KindLink, Target: target}, err
	default:
		return envresolve.Entry{Kind: envresolve.KindOther}, nil
	}
}

// openat repeats a call that a signal interrupted. On slow file systems the Go runtime's own signals do so.
func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
