package files

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/text/unicode/norm"

	"toolcall.dev/operator/internal/runner/files/sys"
)

// maxNamesCompared is how many entries of a directory are compared with a name that isn't in it.
const maxNamesCompared = 10_000

// notFound says that the current directory has no such name. Where it has one that is easily taken for it, it says which.
func (r *resolver) notFound(full string) error {
	err := sys.FileError("find", full, unix.ENOENT)
	known := (*Error)(nil)
	if other := r.alike(path.Base(full)); other != "" && errors.As(err, &known) {
		known.Message += " There is " + quoteExactly(path.Join(r.at, other)) + ", whose name differs only in upper and lower case, in blanks, or in how " +
			"its accents are encoded."
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
	compared, wanted := 0, outline(name)
	_ = readDir(r.c.ctx, fd, func(e dirent) error {
		if outline(e.name) == wanted && !r.c.rules.isDenied(path.Join(r.at, e.name)) {
			other = e.name
		}
		if compared++; other != "" || compared == maxNamesCompared {
			return errEnough
		}
		return nil
	})
	return other
}

// quoteExactly quotes a path so that characters which look alike differ.
func quoteExactly(path string) string {
	if norm.NFC.IsNormalString(path) {
		return sys.Quote(path)
	}
	return strconv.QuoteToASCII(path)
}

// outline is what is seen of a name, without the case of its letters.
func outline(name string) string {
	seen := strings.Map(func(c rune) rune {
		if unicode.Is(unicode.Cf, c) {
			return -1
		}
		return unicode.ToLower(c)
	}, norm.NFC.String(name))
	return strings.Join(strings.Fields(seen), " ")
}
