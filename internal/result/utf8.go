package result

import "unicode/utf8"

const replacement = "\uFFFD"

// toText converts to valid UTF-8: each byte that isn't part of a character becomes U+FFFD.
func toText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// textLen is len(toText(b)).
func textLen(b []byte) (n int) {
	if utf8.Valid(b) {
		return len(b)
	}
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		n += utf8.RuneLen(r)
		b = b[size:]
	}
	return n
}

// prefix is the longest beginning of b, ending between characters, that takes at most limit bytes as text.
func prefix(b []byte, limit int) []byte {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if limit -= utf8.RuneLen(r); limit < 0 {
			return b[:i]
		}
		i += size
	}
	return b
}

// suffix is the longest end of b, starting between characters, that takes at most limit bytes as text.
func suffix(b []byte, limit int) []byte {
	for i := len(b); i > 0; {
		r, size := utf8.DecodeLastRune(b[:i])
		if limit -= utf8.RuneLen(r); limit < 0 {
			return b[i:]
		}
		i -= size
	}
	return b
}

// TrimPartialEnd drops a character's beginning that a cut may have left at the end of b.
func TrimPartialEnd(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
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
