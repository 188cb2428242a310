package result

import (
	"strings"
	"unicode/utf8"
)

const replacement = "\uFFFD"

// costFunc says how many bytes a sequence takes in what is being written.
type costFunc func(seq []byte, valid bool) int

func textCost(seq []byte, valid bool) int {
	if valid {
		return len(seq)
	}
	return len(replacement)
}

// next returns the length of the first character of b, or of its first maximal invalid sequence. b isn't empty.
func next(b []byte) (size int, valid bool) {
	if b[0] < utf8.RuneSelf {
		return 1, true
	}
	r, size := utf8.DecodeRune(b)
	if r != utf8.RuneError || size > 1 {
		return size, true
	}
	return invalidLen(b), false
}

// invalidLen is the length of the maximal subpart (Unicode 3.9, table 3-8) that b starts with: the longest
// beginning of a character that no further byte could make valid.
func invalidLen(b []byte) int {
	want, low, high := leadByte(b[0])
	if want < 2 || len(b) < 2 || b[1] < low || b[1] > high {
		return 1
	}
	n := 2
	for n < want && n < len(b) && isContinuation(b[n]) {
		n++
	}
	return n
}

// leadByte returns how long a character is that starts with c, 0 when none does, and the range of its second byte.
func leadByte(c byte) (length int, low, high byte) {
	switch {
	case c >= 0xC2 && c <= 0xDF:
		return 2, 0x80, 0xBF
	case c == 0xE0:
		return 3, 0xA0, 0xBF
	case c == 0xED:
		return 3, 0x80, 0x9F
	case c >= 0xE1 && c <= 0xEF:
		return 3, 0x80, 0xBF
	case c == 0xF0:
		return 4, 0x90, 0xBF
	case c >= 0xF1 && c <= 0xF3:
		return 4, 0x80, 0xBF
	case c == 0xF4:
		return 4, 0x80, 0x8F
	default:
		return 0, 0, 0
	}
}

func isContinuation(c byte) bool { return c&0xC0 == 0x80 }

// toText converts to valid UTF-8.
func toText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		size, valid := next(b)
		if valid {
			out.Write(b[:size])
		} else {
			out.WriteString(replacement)
		}
		b = b[size:]
	}
	return out.String()
}

// textLen is len(toText(b)).
func textLen(b []byte) int {
	if utf8.Valid(b) {
		return len(b)
	}
	return costOf(b, textCost)
}

func costOf(b []byte, cost costFunc) int {
	n := 0
	for len(b) > 0 {
		size, valid := next(b)
		n += cost(b[:size], valid)
		b = b[size:]
	}
	return n
}

// prefix is the longest beginning of b, ending between characters, that costs at most budget.
func prefix(b []byte, budget int, cost costFunc) []byte {
	i := 0
	for i < len(b) {
		size, valid := next(b[i:])
		if budget -= cost(b[i:i+size], valid); budget < 0 {
			break
		}
		i += size
	}
	return b[:i]
}

// suffix is the longest end of b, starting between characters, that costs at most budget.
func suffix(b []byte, budget int, cost costFunc) []byte {
	over := costOf(b, cost) - budget
	for over > 0 && len(b) > 0 {
		size, valid := next(b)
		over -= cost(b[:size], valid)
		b = b[size:]
	}
	return b
}

// TrimPartialEnd drops a character's beginning that a cut may have left at the end of b.
func TrimPartialEnd(b []byte) []byte {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		tail := b[len(b)-n:]
		if !isContinuation(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

// trimPartialStart drops a character's end that a cut may have left at the start of b.
func trimPartialStart(b []byte) []byte {
	for n := 0; n < utf8.UTFMax-1 && len(b) > 0 && isContinuation(b[0]); n++ {
		b = b[1:]
	}
	return b
}
