package redact

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// sequence is what an escape stands for.
type sequence struct {
	// bytes has the first byte lowest.
	bytes uint32
	width int8
	// length is that of the escape; 0 if there is none.
	length int8
	// isCut says that more of the text decides what it is.
	isCut bool
}

func sequenceOf(b byte, length int8) sequence {
	return sequence{bytes: uint32(b), width: 1, length: length}
}

// sequenceOfRune encodes a rune in UTF-8 without a buffer: the processor waits when bytes that were just written are read as one word.
func sequenceOfRune(r rune, length int8) sequence {
	b := uint32(r)
	switch {
	case r < 0x80:
		return sequenceOf(byte(r), length)
	case r < 0x800:
		return sequence{bytes: 0xC0 | b>>6 | trail(b)<<8, width: 2, length: length}
	case r < 0x10000:
		return sequence{bytes: 0xE0 | b>>12 | trail(b>>6)<<8 | trail(b)<<16, width: 3, length: length}
	default:
		return sequence{bytes: 0xF0 | b>>18 | trail(b>>12)<<8 | trail(b>>6)<<16 | trail(b)<<24, width: 4, length: length}
	}
}

// trail returns the byte of UTF-8 for the last six bits.
func trail(bits uint32) uint32 { return 0x80 | bits&0x3F }

func (s sequence) appendTo(out []byte) []byte {
	for i := range s.width {
		out = append(out, byte(s.bytes>>(8*i)))
	}
	return out
}

// notation is a way to write characters as escapes.
type notation interface {
	// parse returns the escape at an index in a text. With isLast nothing is cut.
	parse(text []byte, at int, isLast bool) sequence
	// skip returns the index of the next escape that may matter, from an index on, or the end of the text. It skips those that
	// stand for what no window has, and returns where the last of them ends: 0 if there is none. The text is all of the
	// finder's, or its beginning.
	skip(f *finder, text []byte, at int) (next, end int)
}

// percent is %XX.
type percent struct{}

func (percent) parse(text []byte, at int, isLast bool) sequence {
	text = text[at:]
	if b, ok := percentByte(text); ok {
		return sequenceOf(b, 3)
	}
	isCut := len(text) == 1 || len(text) == 2 && hexDigits[text[1]] != noDigit
	return sequence{isCut: isCut && !isLast}
}

func (percent) skip(f *finder, text []byte, at int) (next, end int) {
	for {
		i := bytes.IndexByte(text[at:], '%')
		if i < 0 {
			return len(text), end
		}
		for at += i; ; at += 3 {
			b, ok := percentByte(text[at:])
			if !ok {
				break
			}
			if f.filter.uses[b] != notInWindow {
				return at, end
			}
			end = at + 3
		}
		if at < len(text) && text[at] == '%' {
			return at, end
		}
	}
}

// percentByte decodes %XX at the beginning of a text.
func percentByte(text []byte) (b byte, ok bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	return hexByte(text[1:])
}

// jsonString has the escapes of JSON strings, and others that Go, Python and JavaScript write in quoted strings: messages
// have them.
type jsonString struct{}

func (jsonString) parse(text []byte, at int, isLast bool) sequence {
	text = text[at:]
	if len(text) > 1 {
		if b := jsonEscapes[text[1]]; b != 0 {
			return sequenceOf(b, 2)
		}
	}
	s := parseLong(text)
	s.isCut = s.isCut && !isLast
	return s
}

func (jsonString) skip(f *finder, text []byte, at int) (next, end int) {
	for {
		i := bytes.IndexByte(text[at:], '\\')
		if i < 0 {
			return len(text), end
		}
		for at += i; at < len(text) && text[at] == '\\'; {
			length := f.skipJSON(text, at)
			if length == 0 {
				return at, end
			}
			at += length
			end = at
		}
	}
}

// skipJSON returns the length of an escape that stands for what no window has; 0 if it isn't known to do so.
func (f *finder) skipJSON(text []byte, at int) int {
	if at+6 > len(text) {
		return 0
	}
	c := text[at+1]
	if b := jsonEscapes[c]; b != 0 {
		use, s := f.filter.uses[b], sequenceOf(b, 2)
		if use == notInWindow || use == partOfOther && !f.isLonger(at, s) && !f.mayJoin(at, s) {
			return 2
		}
		return 0
	}
	if r, isUnit := fourDigits(text[at+2:]); c == 'u' && isUnit && !utf16.IsSurrogate(r) && !f.filter.mayHaveRune(r) {
		return 6
	}
	return 0
}

var jsonEscapes = [256]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/', '\'': '\'', 'a': '\a', 'v': '\v'}

// parseLong parses an escape of more than two characters.
func parseLong(text []byte) sequence {
	if len(text) < 2 {
		return sequence{isCut: true}
	}
	if text[1] == 'x' {
		return parseHexByte(text)
	}
	r, isCut := jsonUnit(text)
	switch {
	case isCut || r < 0:
		return sequence{isCut: isCut}
	case r >= 0xDC80 && r <= 0xDCFF:
		// Python writes a byte so that isn't UTF-8.
		return sequenceOf(byte(r-0xDC00), 6)
	case utf16.IsSurrogate(r):
		return parsePair(text, r)
	default:
		return sequenceOfRune(r, 6)
	}
}

// parseHexByte decodes \xXX.
func parseHexByte(text []byte) sequence {
	if len(text) < 4 {
		return sequence{isCut: len(text) == 2 || hexDigits[text[2]] != noDigit}
	}
	if b, ok := hexByte(text[2:]); ok {
		return sequenceOf(b, 4)
	}
	return sequence{}
}

func parsePair(text []byte, high rune) sequence {
	low, isCut := jsonUnit(text[6:])
	if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
		return sequenceOfRune(r, 12)
	}
	return sequence{isCut: isCut && high < 0xDC00}
}

// jsonUnit decodes \uXXXX at the beginning of a text. It is -1 if there is none.
func jsonUnit(text []byte) (r rune, isCut bool) {
	if len(text) >= 6 {
		r, isUnit := fourDigits(text[2:])
		if text[0] != '\\' || text[1] != 'u' || !isUnit {
			return -1, false
		}
		return r, false
	}
	return -1, isUnitCut(text)
}

func fourDigits(text []byte) (r rune, ok bool) {
	a, b, c, d := hexDigits[text[0]], hexDigits[text[1]], hexDigits[text[2]], hexDigits[text[3]]
	return rune(a)<<12 | rune(b)<<8 | rune(c)<<4 | rune(d), a|b|c|d != noDigit
}

// isUnitCut reports whether a text may be the beginning of a \uXXXX.
func isUnitCut(text []byte) bool {
	for i, c := range text {
		if i == 0 && c != '\\' || i == 1 && c != 'u' || i > 1 && hexDigits[c] == noDigit {
			return false
		}
	}
	return true
}

// jsonTwice has the escapes of a JSON string in a JSON string.
type jsonTwice struct{ jsonString }

// longestEscape is how many characters an escape of JSON has at most.
const longestEscape = 12

func (j jsonTwice) parse(text []byte, at int, isLast bool) sequence {
	first := j.jsonString.parse(text, at, isLast)
	if first.isCut || first.length > 0 && first.bytes != '\\' {
		return first
	}
	// A backslash is left.
	if next := at + int(first.length); first.length == 2 && next+longestEscape <= len(text) {
		if s, isKnown := parseSecond(text[next-1:]); isKnown && s.length > 0 {
			s.length++
			return s
		} else if isKnown {
			return first
		}
	}
	return j.parseRest(text, at, first, isLast)
}

// parseSecond parses an escape by looking at no more than one that it has: isKnown says that this is enough. The text is long
// enough.
func parseSecond(text []byte) (s sequence, isKnown bool) {
	c := text[1]
	switch {
	case c == '\\':
		second := jsonEscapes[text[2]]
		if b := jsonEscapes[second]; b != 0 {
			return sequenceOf(b, 3), true
		}
		return s, second != 0
	case jsonEscapes[c] != 0:
		return sequenceOf(jsonEscapes[c], 2), true
	case c == 'x' || c == 'u':
		// Half of a pair is not for here.
		s = parseLong(text)
		return s, s.length > 0 && s.length <= 6 || hexDigits[text[2]] == noDigit && text[2] != '\\'
	default:
		return s, true
	}
}

// parseRest decodes once what follows a backslash, which that may make an escape.
func (j jsonTwice) parseRest(text []byte, at int, first sequence, isLast bool) sequence {
	// ends has where each byte ends that is decoded.
	var buf [longestEscape + utf8.UTFMax]byte
	var ends [longestEscape + utf8.UTFMax]int8
	once := append(buf[:0], '\\')
	end := at + max(1, int(first.length))
	ends[0] = int8(end - at)
	for {
		s := j.jsonString.parse(once, 0, isLast && end == len(text))
		if s.length > 0 {
			s.length = ends[s.length-1]
			return s
		}
		if !s.isCut {
			return first
		}
		if end == len(text) {
			return sequence{isCut: true}
		}
		one := j.next(text, end, isLast)
		if one.isCut {
			return one
		}
		end += int(one.length)
		for range one.width {
			ends[len(once)] = int8(end - at)
			once = once[:len(once)+1]
		}
		one.appendTo(once[:len(once)-int(one.width)])
	}
}

// next decodes once what is at an index of a text: a character that begins no escape is itself.
func (j jsonTwice) next(text []byte, at int, isLast bool) sequence {
	if text[at] == '\\' {
		if s := j.jsonString.parse(text, at, isLast); s.isCut || s.length > 0 {
			return s
		}
	}
	return sequenceOf(text[at], 1)
}

// lineEnds are \n or \r\n between digits: they stand for nothing. One at the end counts, since more digits can follow.
type lineEnds struct{}

func (lineEnds) skip(_ *finder, text []byte, at int) (next, end int) {
	for {
		i := nextEscape(text[at:], '\n')
		if i < 0 {
			return len(text), 0
		}
		if at += i; at > 0 && base64Digits[text[at-1]] != noDigit {
			return at, 0
		}
		at++
	}
}

func (lineEnds) parse(text []byte, at int, isLast bool) sequence {
	if at == 0 || base64Digits[text[at-1]] == noDigit {
		return sequence{}
	}
	length := 1
	if text[at] == '\r' {
		if at+1 == len(text) {
			return sequence{isCut: !isLast}
		}
		if text[at+1] != '\n' {
			return sequence{}
		}
		length = 2
	}
	if at+length < len(text) && base64Digits[text[at+length]] == noDigit {
		return sequence{}
	}
	return sequence{length: int8(length)}
}
