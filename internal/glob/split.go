package glob

import (
	"errors"
	"path"
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
	var plain []string
	for rest = relative; ; {
		name, after, more := strings.Cut(rest, "/")
		if !more || !IsPlain(name) {
			break
		}
		plain, rest = append(plain, name), after
	}
	dir = path.Join(plain...)
	switch {
	case isAbsolute:
		dir = "/" + dir
	case dir == "":
		dir = "."
	}
	return dir, rest, nil
}

// IsPlain says that a glob matches itself alone.
func IsPlain(glob string) bool { return !strings.ContainsAny(glob, `*?[]{}\`) }
