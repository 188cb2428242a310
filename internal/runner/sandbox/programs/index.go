package programs

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// maxNames bounds how many files of a directory are read.
const maxNames = 4096

// dirIndex is what is in a directory of programs.
type dirIndex struct {
	// changed is the state of the directory that was read.
	changed unix.Timespec
	// linked are the names of a file, for files with several.
	linked map[fileID][]string
	// notable are the names that mean more than a file in the directory: links, and those of programs that are many or have helpers.
	notable []string
}

// indexes holds what was read, by the directories' paths. It has no lock: one domain is prepared at a time.
var indexes = map[string]*dirIndex{}

// ReadAhead reads what Prepare needs to know of the directories in a PATH. They hold a thousand files and more.
func ReadAhead(path string) {
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) {
			linksIn(realPath(dir))
		}
	}
}

// linksIn returns the names of files that have several in a directory.
func linksIn(path string) map[fileID][]string {
	dir, err := openPath(path)
	if err != nil {
		return nil
	}
	defer dir.close()
	return dir.index().linked
}

// index returns what is in a directory. It reads it again only when that has changed.
func (f *openFile) index() *dirIndex {
	known := indexes[f.path]
	if known == nil || known.changed != f.changed {
		known = f.readIndex()
		indexes[f.path] = known
	}
	return known
}

// readIndex reads the directory.
func (f *openFile) readIndex() *dirIndex {
	index := &dirIndex{changed: f.changed, linked: map[fileID][]string{}}
	dir, err := os.Open(kernel.FDPath(f.fd))
	if err != nil {
		return index
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxNames)
	for _, name := range names {
		var file unix.Stat_t
		if unix.Fstatat(f.fd, name, &file, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		kind, id := file.Mode&unix.S_IFMT, fileID{file.Dev, file.Ino}
		isLinked := kind == unix.S_IFREG && file.Nlink > 1
		if isLinked {
			index.linked[id] = append(index.linked[id], name)
		}
		if isLinked || kind == unix.S_IFLNK || isMultiCallName(name) || len(helpersOf(name, filepath.Join(f.path, name), nil)) > 0 {
			index.notable = append(index.notable, name)
		}
	}
	return index
}
