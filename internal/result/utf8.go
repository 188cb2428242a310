package result

import (
	"strings"
	"unicode/utf8"
)

const replacement = "\uFFFD"

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

// nextText is next, with how many bytes it takes as text in place of whether it is valid.
func nextText(b []byte) (size, asText int) {
	size, valid := next(b)
	if valid {
		return size, size
	}
	return size, len(replacement)
}

// textLen is len(toText(b)).
func textLen(b []byte) int {
	if utf8.Valid(b) {
		return len(b)
	}
	n := 0
	for len(b) > 0 {
		size, asText := nextText(b)
		n += asText
		b = b[size:]
	}
	return n
}

// prefix is the longest beginning of b, ending between characters, that takes at most limit bytes as text.
func prefix(b []byte, limit int) []byte {
	i := 0
	for i < len(b) {
		size, asText := nextText(b[i:])
		if limit -= asText; limit < 0 {
			break
		}
		i += size
	}
	return b[:i]
}

// suffix is the longest end of b, starting between characters, that takes at most limit bytes as text.
func suffix(b []byte, limit int) []byte {
	for over := textLen(b) - limit; over > 0 && len(b) > 0; {
		size, asText := nextText(b)
		over -= asText
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
