package programs

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// fileID tells files apart, whatever their names.
type fileID struct{ dev, ino uint64 }

// openFile is a file or directory that is held open.
type openFile struct {
	fd int
	// path has no links.
	path string
	id   fileID
	mode uint32
	// changed is when the file or its names changed.
	changed unix.Timespec
	// isNamed says that the file has a name, isLinked that it has several.
	isNamed, isLinked bool
	// owner is its user.
	owner uint32
}

// isOwn reports whether this user can make the file writable for itself.
func (f *openFile) isOwn() bool {
	var fs unix.Statfs_t
	return int(f.owner) == os.Geteuid() && (unix.Fstatfs(f.fd, &fs) != nil || fs.Flags&unix.ST_RDONLY == 0)
}

// isReplaceable reports whether this user can change the file, or put another one in its place.
func (f *openFile) isReplaceable() bool {
	return f.mayAccess(unix.W_OK) || f.isOwn() || mayReplaceIn(filepath.Dir(f.path))
}

// mayReplaceIn reports whether this user can put something into a directory. Root can everywhere, which says nothing.
func mayReplaceIn(dir string) bool { return os.Geteuid() != 0 && unix.Access(dir, unix.W_OK) == nil }

// openPath opens what a path leads to.
func openPath(path string) (*openFile, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return newOpenFile(fd)
}

// newOpenFile takes a descriptor. After an error it is closed.
func newOpenFile(fd int) (*openFile, error) {
	f, err := statFile(fd)
	if err != nil {
		return nil, err
	}
	if f.path, err = os.Readlink(kernel.FDPath(fd)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return f, nil
}

// statFile takes a descriptor, without its path. After an error it is closed.
func statFile(fd int) (*openFile, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &openFile{fd: fd, id: fileID{st.Dev, st.Ino}, mode: st.Mode, changed: st.Ctim, isNamed: st.Nlink > 0, isLinked: st.Nlink > 1, owner: st.Uid}, nil
}

func (f *openFile) close()          { unix.Close(f.fd) }
func (f *openFile) isDir() bool     { return f.mode&unix.S_IFMT == unix.S_IFDIR }
func (f *openFile) isRegular() bool { return f.mode&unix.S_IFMT == unix.S_IFREG }

// isExecutable reports whether this user may execute the file.
func (f *openFile) isExecutable() bool {
	const anybody = 0o111
	return f.isRegular() && (f.mode&anybody == anybody || f.mode&anybody != 0 && f.mayAccess(unix.X_OK))
}

// mayAccess asks the kernel about the open file.
func (f *openFile) mayAccess(mode uint32) bool { return unix.Access(kernel.FDPath(f.fd), mode) == nil }
