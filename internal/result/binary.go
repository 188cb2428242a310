package result

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// aFew is how many bytes of a text may be wrong, however short it is.
const aFew = 8

// IsBinary says that what a command wrote is no text: more than a few of its bytes, and than a quarter of them, are wrong.
func IsBinary(b []byte) bool {
	wrong := WrongBytes(b)
	return wrong > aFew && 4*wrong > len(b)
}

// WrongBytes counts the bytes that aren't UTF-8 or are NUL.
func WrongBytes(b []byte) int {
	wrong := 0
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		if c == 0 || c == utf8.RuneError && size == 1 {
			wrong++
		}
		b = b[size:]
	}
	return wrong
}

// NotShown stands for binary output of a call: what it is, and how to get it.
func NotShown(what, namespace, call, stream string) string {
	return fmt.Sprintf("(%s, which are binary and aren't shown as text: kubectl toolcall logs %s -n %s --stream %s gets them)", what, call, namespace, stream)
}

// isBinary says that what was kept of a stream is no text. Characters that were cut don't count.
func (s *Stream) isBinary() bool {
	switch {
	case !s.InvalidUTF8:
		return false
	case s.Whole():
		return IsBinary(s.joined())
	default:
		return IsBinary(slices.Concat(TrimPartialEnd(s.Head), TrimPartialStart(s.Tail)))
	}
}

// shown is what a terminal shows of a stream, or a description of one that is binary.
func (s *Stream) shown(limit int, namespace, call, name string) string {
	if s.isBinary() {
		return NotShown(fmt.Sprintf("%d bytes of %s", s.Bytes, name), namespace, call, name)
	}
	text, _ := s.Text(limit)
	return Show(text)
}
