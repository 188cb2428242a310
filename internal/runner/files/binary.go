package files

import (
	"bytes"
	"context"
	"fmt"
	"unicode/utf8"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// byteOrderMark is how some editors begin a file of UTF-8.
const byteOrderMark = "\uFEFF"

// headBytes is how much of a file, or around a part of one, shows whether it is text.
const headBytes = 8 << 10

// isBinary says that nobody could read a text: it has NUL bytes, or more than a quarter of it isn't UTF-8.
func isBinary(text []byte) bool {
	broken := 0
	for rest := result.TrimPartialEnd(text); len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		if c == utf8.RuneError && size == 1 {
			broken++
		}
		rest = rest[size:]
	}
	return 4*broken > len(text) || bytes.IndexByte(text, 0) >= 0
}

// isBinaryAt says so of a part of a file. What is short, or begins inside a character, may be text all the same: what is around it tells.
func isBinaryAt(ctx context.Context, fd int, at int64, text []byte) (bool, error) {
	if !isBinary(text) {
		return false, nil
	}
	around, err := sys.ReadSpan(ctx, fd, sys.Span{Start: max(at-headBytes, 0), End: at + int64(len(text)) + headBytes})
	return isBinary(around), err
}

// describeBinary says of a binary file what it is, and how to get it.
func describeBinary(text []byte, size int64) string {
	if isUTF16 := bytes.HasPrefix(text, []byte("\xFF\xFE")) || bytes.HasPrefix(text, []byte("\xFE\xFF")); isUTF16 && bytes.IndexByte(text, 0) >= 0 {
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
