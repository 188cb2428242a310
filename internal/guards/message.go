package guards

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxQuoted is how many characters of a part of a call a message repeats.
	maxQuoted = 80
	// maxSummary is how many characters of an action its summary holds.
	maxSummary = 40
	// maxListed is how many entries of a policy's list a message repeats.
	maxListed = 12
)

// quote repeats a part of a call in a message. It shortens the part and escapes control characters, which could
// otherwise change what a terminal shows.
func quote(s string) string {
	cut, whole := cutRunes(s, maxQuoted)
	if whole {
		return strconv.Quote(cut)
	}
	return strconv.Quote(cut) + "…"
}

// cutRunes returns the first n characters, and whether that is all of s.
func cutRunes(s string, n int) (string, bool) {
	for i := range s {
		if n == 0 {
			return s[:i], false
		}
		n--
	}
	return s, true
}

// cutBytes returns at most n bytes of s, never a part of a character.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// joinNames repeats the start of a policy's list, in the policy's order.
func joinNames(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxListed], ", ") + " and " + strconv.Itoa(len(names)-maxListed) + " more"
}

// useListed says what would pass in place of a program that isn't listed.
func useListed(names []string) string {
	if len(names) == 0 {
		return "the list is empty, so have the program listed"
	}
	return "use one of " + joinNames(names) + ", or have it listed"
}

// printable makes a text safe for one line of a terminal: white space becomes a space, other control and
// formatting characters become a picture of themselves or U+FFFD.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '\f' || r == '\v':
			return ' '
		case r < 0x20:
			return 0x2400 + r
		case r == 0x7f:
			return 0x2421
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// hasField reports whether a list of words, separated by white space, holds word.
func hasField(list, word string) bool {
	for field := range strings.FieldsSeq(list) {
		if field == word {
			return true
		}
	}
	return false
}
