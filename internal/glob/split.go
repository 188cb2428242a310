package glob

import (
	"errors"
	"slices"
	"strings"
)

// Split takes a glob of files apart: the directory that its matches are in, as far as the glob names it, and the glob of their
// paths below that. The directory is absolute where the glob is, and otherwise "." or relative.
func Split(glob string) (dir, rest string, err error) {
	relative, isAbsolute := strings.CutPrefix(glob, "/")
	if relative == "" {
		return "", "", errors.New("it names no file")
	}
	if _, err := Expression(relative); err != nil {
		return "", "", err
	}
	dir = strings.Join(Prefix(relative), "/")
	rest = strings.TrimPrefix(strings.TrimPrefix(relative, dir), "/")
	switch {
	case isAbsolute:
		dir = "/" + dir
	case dir == "":
		dir = "."
	}
	return dir, rest, nil
}

// Prefix are the leading names of a glob that match themselves alone, without its last name.
func Prefix(glob string) []string {
	names := strings.Split(glob, "/")
	last := len(names) - 1
	if n := slices.IndexFunc(names[:last], func(name string) bool { return !IsPlain(name) }); n >= 0 {
		last = n
	}
	return names[:last]
}

// IsPlain says that a glob matches itself alone.
func IsPlain(glob string) bool { return !strings.ContainsAny(glob, `*?[]{}\`) }
