package redact

import (
	"bytes"
	"encoding/binary"
)

// finder finds the escapes of a text that begin with a character, for the views that decode them.
type finder struct {
	notation notation
	text     *layer
	filter   *filter
	begin    byte
	// next is where the text goes on that isn't looked at. escaped is where the last escape ends.
	next, escaped int64
	// places are of what was looked at last, which begins at first. Those of escapes that are in no window and in no run are
	// left out. The first ones stay, as many as kept says. Whether the others do depends on what follows them.
	places []place
	kept   int
	first  int64
	// recent has the last eight bytes up to escaped, decoded, the last one highest. What is before an escape that no window
	// can have may be wrong.
	recent uint64
	// nextRun is the index of the first run that isn't passed.
	nextRun int
}

// place is where an escape may be, as an index in the text and in what is decoded of it, and where the escape before it ends:
// never after at. isPassed says that no window has it, also if what is decoded is decoded again.
type place struct {
	at, decoded, after int32
	isPassed           bool
}

// nearby is how many decoded bytes may have a window, and the character of base64 before it: each has a line end.
const nearby = 3 * (window + 1)

// find looks at what is new in the text.
func (f *finder) find(isLast bool) {
	l := f.text
	l.joinRuns()
	f.places, f.kept, f.nextRun = f.places[:0], 0, 0
	at, shorter := int(max(f.next, l.from)-l.base), 0
	f.first = l.base + int64(at)
	after := int(max(f.escaped, l.from) - l.base)
	for at < len(l.text) {
		if limit := f.beforeRun(at); at < limit {
			next, end := f.notation.skip(f, l.text[:limit], at)
			if end > 0 {
				// What is skipped is in no window, and so is nothing across it.
				f.places, after = f.places[:f.kept], end
			}
			if at = next; at == limit {
				continue
			}
		} else if i := nextEscape(l.text[at:], f.begin); i >= 0 {
			at += i
		} else {
			at = len(l.text)
			break
		}
		s := f.notation.parse(l.text, at, isLast)
		f.note(place{at: int32(at), decoded: int32(at - shorter), after: int32(after)}, s)
		if s.isCut {
			break
		}
		if at += max(1, int(s.length)); s.length > 0 {
			after = at
			shorter += int(s.length - s.width)
		}
	}
	f.keep(int32(at - shorter))
	f.next, f.escaped = l.base+int64(at), l.base+int64(after)
}

// beforeRun returns the index up to which no run is after an index: one at or before that, if it is in a run.
func (f *finder) beforeRun(at int) int {
	l := f.text
	for f.nextRun < len(l.runs) && l.runs[f.nextRun].at < l.base+int64(at) {
		f.nextRun++
	}
	if f.nextRun == len(l.runs) {
		return len(l.text)
	}
	return int(max(l.runs[f.nextRun].start, l.base) - l.base)
}

// note adds a place, unless nothing can be there. It keeps the places of a window that may end with the escape, or in the
// characters after it: one that has several escapes is seen by the last of them.
func (f *finder) note(one place, s sequence) {
	if s.width == 0 && s.length > 0 {
		f.places = append(f.places, one)
		f.kept = len(f.places)
		return
	}
	at := int(one.at)
	isNeeded := s.isCut || f.isLonger(at, s) || f.beforeRun(at) <= at || f.mayJoin(at, s)
	switch {
	case isNeeded:
	case s.length == 0:
		return
	case s.width == 1 && f.filter.uses[byte(s.bytes)] != inWindow:
		f.places = f.places[:f.kept]
		return
	}
	if s.length > 0 {
		isNeeded = f.roll(at, int(one.after), s) || isNeeded
	}
	f.places = append(f.places, one)
	if isNeeded {
		f.keep(one.decoded)
	}
}

// keep keeps the places of which something may go on at an index of what is decoded, and drops those before.
func (f *finder) keep(decoded int32) {
	from := len(f.places)
	for from > f.kept && f.places[from-1].decoded >= decoded-nearby {
		from--
	}
	f.places = f.places[:f.kept+copy(f.places[f.kept:], f.places[from:])]
	f.kept = len(f.places)
}

// roll adds what an escape stands for to recent. It reports whether the four bytes that end with one of it may be in a
// window, or the four characters after it.
func (f *finder) roll(at, after int, s sequence) (mayBe bool) {
	text := f.text.text
	if at >= 8 {
		plain := 8 * uint(min(at-after, 8))
		f.recent = f.recent>>plain | binary.LittleEndian.Uint64(text[at-8:])>>(64-plain)<<(64-plain)
	} else {
		for _, c := range text[after:at] {
			f.recent = f.recent>>8 | uint64(c)<<56
		}
	}
	for i := range s.width {
		f.recent = f.recent>>8 | uint64(byte(s.bytes>>(8*i)))<<56
		mayBe = mayBe || f.filter.hintsOf(uint32(f.recent>>32)) != 0
	}
	next := at + int(s.length)
	return mayBe || next+gram > len(text) || f.filter.hintsOf(gramOf(text[next:])) != 0
}

// isLonger reports whether a backslash, and what follows it, may be an escape when they are decoded once.
func (f *finder) isLonger(at int, s sequence) bool {
	if f.begin != '\\' || s.length > 0 && s.bytes != '\\' {
		return false
	}
	return mayEscape(f.text.text[at+max(1, int(s.length)):])
}

// mayEscape reports whether what follows a backslash may make it an escape.
func mayEscape(text []byte) bool {
	return len(text) == 0 || jsonEscapes[text[0]] != 0 || text[0] == 'x' || text[0] == 'u'
}

// mayJoin reports whether an escape may be a line end between digits or a part of one, or may have one near it.
func (f *finder) mayJoin(at int, s sequence) bool {
	text, next := f.text.text, at+int(s.length)
	switch {
	case s.width == 1 && base64Digits[byte(s.bytes)] != noDigit:
		return bytes.IndexByte(text[max(0, at-lookBack):min(len(text), next+lookBack)], '\n') >= 0
	case s.bytes != '\n' && s.bytes != '\r' || at == 0:
		return false
	case base64Digits[text[at-1]] == noDigit && text[at-1] != '\r':
		return false
	case next == len(text):
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
