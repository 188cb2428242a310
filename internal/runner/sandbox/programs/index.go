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
}

// indexes holds what was read, by the directories' paths. Who prepares a domain owns them.
var indexes = map[string]*dirIndex{}

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
	known := indexes[path]
	if known == nil || known.changed != dir.changed {
		known = &dirIndex{changed: dir.changed, linked: dir.readLinked()}
		indexes[path] = known
	}
	return known.linked
}

// readLinked reads the directory.
func (f *openFile) readLinked() map[fileID][]string {
	linked := map[fileID][]string{}
	dir, err := os.Open(kernel.FDPath(f.fd))
	if err != nil {
		return linked
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxNames)
	for _, name := range names {
		var file unix.Stat_t
		if unix.Fstatat(f.fd, name, &file, unix.AT_SYMLINK_NOFOLLOW) == nil && file.Nlink > 1 && file.Mode&unix.S_IFMT == unix.S_IFREG {
			id := fileID{file.Dev, file.Ino}
			linked[id] = append(linked[id], name)
		}
	}
	return linked
}
