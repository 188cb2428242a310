package programs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// maxNames bounds how many files of a directory are read.
const maxNames = 4096

// dirIndex is what is in a directory of programs.
type dirIndex struct {
	// changed is the state of the directory that was read.
	changed unix.Timespec
	// names are all names, nil if there are too many. linked are the names of a file, for files with several.
	names  map[string]bool
	linked map[fileID][]string
}

var (
	indexMutex sync.Mutex
	// indexes holds what was read, by the directories' paths.
	indexes = map[string]*dirIndex{}
)

// ReadAhead reads what Prepare needs to know of the directories in a PATH. They hold a thousand files and more.
func ReadAhead(path string) {
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) {
			linksIn(realPath(dir))
		}
	}
}

// linksIn returns the names of files that have several in a directory. It reads the directory again only when that has
// changed.
func linksIn(path string) map[fileID][]string {
	dir, err := openPath(path)
	if err != nil {
		return nil
	}
	defer dir.close()
	if known := dir.index(); known != nil {
		return known.linked
	}
	read := dir.read()
	indexMutex.Lock()
	defer indexMutex.Unlock()
	indexes[path] = read
	return read.linked
}

// mayHold reports whether a directory can hold a name: without it being read, as far as is known.
func mayHold(dir *openFile, name string) bool {
	known := dir.index()
	return known == nil || known.names == nil || known.names[name]
}

// index returns what is known of the directory as it is now.
func (f *openFile) index() *dirIndex {
	indexMutex.Lock()
	defer indexMutex.Unlock()
	if known := indexes[f.path]; known != nil && known.changed == f.changed {
		return known
	}
	return nil
}

func (f *openFile) read() *dirIndex {
	index := &dirIndex{changed: f.changed, linked: map[fileID][]string{}}
	dir, err := os.Open(kernel.FDPath(f.fd))
	if err != nil {
		return index
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxNames)
	if len(names) < maxNames && (err == nil || errors.Is(err, io.EOF)) {
		index.names = make(map[string]bool, len(names))
	}
	for _, name := range names {
		if index.names != nil {
			index.names[name] = true
		}
		var file unix.Stat_t
		if unix.Fstatat(f.fd, name, &file, unix.AT_SYMLINK_NOFOLLOW) == nil && file.Nlink > 1 && file.Mode&unix.S_IFMT == unix.S_IFREG {
			id := fileID{file.Dev, file.Ino}
			index.linked[id] = append(index.linked[id], name)
		}
	}
	return index
}
