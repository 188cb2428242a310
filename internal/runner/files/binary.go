package files

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// textCheck finds out whether what is written to it is text.
type textCheck struct {
	start              []byte
	size, nuls, broken int64
	// held is the beginning of a character whose rest hasn't come.
	held []byte
}

// startBytes is how much of a file says which kind of text it is.
const startBytes = 2

func (t *textCheck) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	t.start = append(t.start, p[:min(len(p), startBytes-len(t.start))]...)
	t.nuls += int64(bytes.Count(p, []byte{0}))
	rest := p
	if len(t.held) > 0 {
		rest = slices.Concat(t.held, p)
	}
	if t.held = nil; !utf8.Valid(rest) {
		t.count(rest)
	}
	return len(p), nil
}

// count counts the bytes that aren't UTF-8.
func (t *textCheck) count(p []byte) {
	for len(p) > 0 && utf8.FullRune(p) {
		c, size := utf8.DecodeRune(p)
		if c == utf8.RuneError && size == 1 {
			t.broken++
		}
		p = p[size:]
	}
	t.held = bytes.Clone(p)
}

// isBinary says that nobody could read it: it has NUL bytes, or more than a quarter of it isn't UTF-8.
func (t *textCheck) isBinary() bool { return t.nuls > 0 || 4*t.broken > t.size }

// describe says of a binary file what it is, and how to get it.
func (t *textCheck) describe(size int64) string {
	if start := string(t.start); t.nuls > 0 && (start == "\xFF\xFE" || start == "\xFE\xFF") {
		return fmt.Sprintf("is text in UTF-16, of %s, which isn't shown: convert it with iconv -f UTF-16 -t UTF-8", counted(size, "byte"))
	}
	return fmt.Sprintf("is a binary file of %s, which isn't shown as text: download it, or look into it with a program such as file, xxd or iconv",
		counted(size, "byte"))
}

func counted(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// noteEnd says that nothing was read, as the file has only so many lines or bytes.
func (r *Result) noteEnd(count, offset int64, unit string) {
	if count == 0 {
		r.Note = "is empty"
		return
	}
	r.Note = fmt.Sprintf("has %s: nothing is at offset %d", counted(count, unit), offset)
}

// noteBinary says that what was read of a file isn't text.
func (r *Result) noteBinary(check *textCheck, st *unix.Stat_t) {
	if check.isBinary() {
		r.Binary, r.Note = true, check.describe(st.Size)
	}
}
