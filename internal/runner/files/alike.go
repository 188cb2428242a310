package files

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/files/sys"
)

// maxNamesCompared is how many entries of a directory are compared with a name that isn't in it.
const maxNamesCompared = 10_000

// notFound says that the current directory has no such name. Where it has one that is easily taken for it, it says which.
func (r *resolver) notFound(full string) error {
	err := sys.FileError("find", full, unix.ENOENT)
	known := (*Error)(nil)
	if other := r.alike(path.Base(full)); other != "" && errors.As(err, &known) {
		known.Message += " There is " + sys.Quote(path.Join(r.at, other)) + ", whose name differs only in upper and lower case or in blanks."
	}
	return err
}

// alike returns the name of an entry of the current directory that is easily taken for another; empty if there is none.
func (r *resolver) alike(name string) (other string) {
	if r.cur < 0 {
		return ""
	}
	fd, err := sys.OpenBeneath(r.cur, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return ""
	}
	defer sys.Close(fd)
	compared := 0
	_ = readDir(r.c.ctx, fd, func(e dirent) error {
		if isAlike(e.name, name) && !r.c.rules.isDenied(path.Join(r.at, e.name)) {
			other = e.name
		}
		if compared++; other != "" || compared == maxNamesCompared {
			return errEnough
		}
		return nil
	})
	return other
}

// isAlike says that two names differ only in case and in blanks, of any kind.
func isAlike(a, b string) bool {
	return strings.EqualFold(strings.Join(strings.Fields(a), " "), strings.Join(strings.Fields(b), " "))
}
