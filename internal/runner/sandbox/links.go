package sandbox

import (
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// maxNames bounds how many files of a directory are compared.
const maxNames = 4096

// linkCounts are how many names each file has in a directory, for files with several names.
type linkCounts map[fileID]int

var (
	linksMutex sync.Mutex
	// links holds what was read of directories, each with its state at that time.
	links = map[string]struct {
		changed unix.Timespec
		counts  linkCounts
	}{}
)

// ReadAhead reads what Prepare needs to know of the directories in a PATH. They hold a thousand files and more.
func ReadAhead(path string) {
	for _, dir := range filepath.SplitList(path) {
		if real, err := filepath.EvalSymlinks(dir); err == nil && filepath.IsAbs(dir) {
			linksIn(real)
		}
	}
}

// linksIn counts the names of files in a directory, again only when the directory has changed.
func linksIn(path string) linkCounts {
	linksMutex.Lock()
	defer linksMutex.Unlock()
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil
	}
	if known, ok := links[path]; ok && known.changed == st.Ctim {
		return known.counts
	}
	known := links[path]
	known.changed, known.counts = st.Ctim, linkCounts{}
	names, _ := dir.Readdirnames(maxNames)
	for _, name := range names {
		var file unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &file, unix.AT_SYMLINK_NOFOLLOW) == nil && file.Nlink > 1 &&
			file.Mode&unix.S_IFMT == unix.S_IFREG {
			known.counts[fileID{file.Dev, file.Ino}]++
		}
	}
	links[path] = known
	return known.counts
}
