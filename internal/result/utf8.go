package result

import (
	"strings"
	"unicode/utf8"
)

const replacement = "\uFFFD"

// NotUTF8 says of a text that was read from a file that it isn't all that the file has.
const NotUTF8 = "Bytes that aren't UTF-8 are shown as U+FFFD: writing this text to the file would lose them."

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
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}

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
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

// TrimPartialStart drops a character's end that a cut may have left at the start of b.
func TrimPartialStart(b []byte) []byte {
	for n := 0; n < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); n++ {
		b = b[1:]
	}
	return b
}
