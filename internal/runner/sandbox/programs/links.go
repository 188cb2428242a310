package programs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// DevicePaths may always be written to.
var DevicePaths = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm",
}

// followLinks returns what a path leads to, without links, and the directories, without links themselves, in which the links lie
// that it leads through. The first is empty if there are too many. Both are of one walk: a link that changes meanwhile can't make
// one of them what it was before and the other what it is after.
func followLinks(path string) (real string, dirs []string) {
	at, rest := "/", path
	for rest != "" {
		if len(dirs) == kernel.MaxLinks {
			return "", dirs
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		dirs = append(dirs, at)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = target + "/" + rest
	}
	return at, dirs
}

// Roots are the directories of rules, without links. One is left out that leads through a link which calls can replace:
// it would let them choose what it is.
func Roots(paths []string) []string {
	var all, kept []string
	var links [][]string
	for _, path := range paths {
		if real, dirs := followLinks(path); filepath.IsAbs(path) && real != "" {
			all, links = append(all, real), append(links, dirs)
		}
	}
	for i, real := range all {
		replaceable := slices.ContainsFunc(links[i], func(dir string) bool {
			return mayReplaceIn(dir) || slices.ContainsFunc(all, func(root string) bool { return IsBelow(dir, root) })
		})
		if !replaceable {
			kept = append(kept, real)
		}
	}
	return kept
}

// IsBelow reports whether a path is a directory or lies below it.
func IsBelow(path, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// realPath is a path without links, or as it is if it leads nowhere.
func realPath(path string) string {
	f, err := openPath(path)
	if err != nil {
		return filepath.Clean(path)
	}
	defer f.close()
	return f.path
}
