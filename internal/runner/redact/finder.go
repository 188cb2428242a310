package redact

import "bytes"

// finder finds the escapes of a text that begin with a character, for the views that decode them.
type finder struct {
	notation notation
	text     *layer
	begin    byte
	// next is where the text goes on that isn't looked at. escaped is where the last escape ends.
	next, escaped int64
	// places are of what was looked at last, which begins at first. It leaves out escapes of characters that aren't in a window, outside of runs.
	places []place
	first  int64
}

// place is where an escape may be, as an index in the text, and where the escape before it ends: never after at. isPassed
// says that no window has it, also if what is decoded is decoded again.
type place struct {
	at, after int32
	isPassed  bool
}

// find looks at what is new in the text.
func (f *finder) find(isLast bool) {
	l := f.text
	l.joinRuns()
	f.places = f.places[:0]
	at := int(max(f.next, l.from) - l.base)
	f.first = l.base + int64(at)
	after := int(max(f.escaped, l.from) - l.base)
	for {
		i := nextEscape(l.text[at:], f.begin)
		if i < 0 {
			at = len(l.text)
			break
		}
		at += i
		s := f.notation.parse(l.text, at, isLast)
		if s.isCut || f.mayMatter(at, s) {
			f.places = append(f.places, place{at: int32(at), after: int32(after)})
		}
		if s.isCut {
			break
		}
		if at += max(1, int(s.length)); s.length > 0 {
			after = at
		}
	}
	f.next, f.escaped = l.base+int64(at), l.base+int64(after)
}

// mayMatter reports whether an escape may be in a window or a run, or a part of a longer one.
func (f *finder) mayMatter(at int, s sequence) bool {
	text, next := f.text.text, at+int(s.length)
	switch {
	case f.begin == '\\' && (s.length == 0 || s.bytes == '\\') && isLonger(text[max(next, at+1):]):
		return true
	case s.length == 0:
		return false
	case s.width == 0 || len(f.text.runs) > 0 || f.mayJoin(at, s):
		return true
	}
	for rest := s; rest.width > 0; rest.width-- {
		if f.text.known.filter.inWindow[byte(rest.bytes)] != 0 {
			return true
		}
		rest.bytes >>= 8
	}
	return false
}

// isLonger reports whether what follows a backslash may make it an escape when it is decoded once.
func isLonger(text []byte) bool {
	return len(text) == 0 || jsonEscapes[text[0]] != 0 || text[0] == 'x' || text[0] == 'u'
}

// mayJoin reports whether an escape may be a line end between digits, or a part of one.
func (f *finder) mayJoin(at int, s sequence) bool {
	if s.bytes != '\n' && s.bytes != '\r' || at == 0 {
		return false
	}
	text, next := f.text.text, at+int(s.length)
	if base64Digits[text[at-1]] == noDigit && text[at-1] != '\r' {
		return false
	}
	if next == len(text) {
		return true
	}
	c := text[next]
	if c == f.begin {
		after := f.notation.parse(text, next, false)
		if after.isCut || after.length == 0 {
			return after.isCut
		}
		c = byte(after.bytes)
	}
	return base64Digits[c] != noDigit || c == '\n' && s.bytes == '\r'
}

// nextEscape returns the index of what may be the next escape, -1 for none. Line ends begin with their last character.
func nextEscape(text []byte, begin byte) int {
	at := bytes.IndexByte(text, begin)
	switch {
	case begin != '\n':
	case at < 0 && len(text) > 0 && text[len(text)-1] == '\r':
		return len(text) - 1
	case at > 0 && text[at-1] == '\r':
		return at - 1
	}
	return at
}
