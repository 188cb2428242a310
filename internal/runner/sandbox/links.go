package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// followLinks returns what a path leads to, without links, and the directories, without links themselves, in which the links lie
// that it leads through. The first is empty if there are too many. Both are of one walk: a link that changes meanwhile can't make
// one of them what it was before and the other what it is after.
func followLinks(path string) (real string, dirs []string) {
	at, rest := "/", path
	for rest != "" {
		if len(dirs) == maxLinks {
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

// roots are the directories of rules, without links. One is left out that leads through a link which calls can replace:
// it would let them choose what it is.
func roots(paths []string) []string {
	var all, kept []string
	var links [][]string
	for _, path := range paths {
		if real, dirs := followLinks(path); filepath.IsAbs(path) && real != "" {
			all, links = append(all, real), append(links, dirs)
		}
	}
	for i, real := range all {
		replaceable := slices.ContainsFunc(links[i], func(dir string) bool {
			return mayReplaceIn(dir) || slices.ContainsFunc(all, func(root string) bool { return isBelow(dir, root) })
		})
		if !replaceable {
			kept = append(kept, real)
		}
	}
	return kept
}
