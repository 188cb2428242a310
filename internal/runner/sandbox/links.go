package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// links are the directories, without links themselves, in which the links lie that a path leads through.
func links(path string) []string {
	var dirs []string
	at, rest := "/", path
	for rest != "" && len(dirs) < maxLinks {
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
	return dirs
}

// roots are the directories of rules, without links. One is left out that leads through a link which calls can replace:
// it would let them choose what it is.
func roots(paths []string) []string {
	var all, kept []string
	for _, path := range paths {
		all = append(all, realPath(path))
	}
	for i, path := range paths {
		replaceable := slices.ContainsFunc(links(path), func(dir string) bool {
			return mayReplaceIn(dir) || slices.ContainsFunc(all, func(root string) bool { return isBelow(dir, root) })
		})
		if filepath.IsAbs(path) && !replaceable {
			kept = append(kept, all[i])
		}
	}
	return kept
}
