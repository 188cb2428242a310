package files

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode"

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

// quoteExactly quotes a path so that characters which look alike differ.
func quoteExactly(path string) string {
	if isComposedApart(path) {
		return strconv.QuoteToASCII(path)
	}
	return sys.Quote(path)
}

// isAlike says that two names differ only in case, in kinds of blanks, in characters that aren't seen, or in the composition of
// characters.
func isAlike(a, b string) bool {
	return outline(a, false) == outline(b, false) ||
		(isComposedApart(a) || isComposedApart(b)) && outline(a, true) == outline(b, true)
}

// isComposedApart says that a text has letters that are encoded with their accents, or syllables with their parts, one by one.
func isComposedApart(s string) bool { return strings.ContainsFunc(s, isPart) }

func isPart(c rune) bool { return unicode.Is(unicode.Mn, c) || c >= 0x1100 && c <= 0x11FF }

// accented stands for letters beyond ASCII and syllables for those of Hangul, which can be encoded in several ways.
const (
	accented  = '\uFFFD'
	syllables = '\uAC00'
)

// outline is what is seen of a name, without the case of its letters. Tables of how characters are composed would be larger than
// this package: with compose, letters with accents and beyond ASCII are all alike.
func outline(name string, compose bool) string {
	var out []rune
	for _, c := range name {
		last := len(out) - 1
		switch {
		case unicode.IsSpace(c):
			c = ' '
		case unicode.Is(unicode.Cf, c):
			continue
		case compose && unicode.Is(unicode.Mn, c) && last >= 0:
			out, c = out[:last], accented
		case compose && unicode.Is(unicode.Hangul, c):
			c = syllables
		case compose && c > unicode.MaxASCII && unicode.IsLetter(c) && !unicode.Is(unicode.Han, c):
			c = accented
		default:
			c = unicode.ToLower(c)
		}
		if last = len(out) - 1; last >= 0 && out[last] == c && (c == ' ' || c == accented || c == syllables) {
			continue
		}
		out = append(out, c)
	}
	return strings.TrimSpace(string(out))
}
