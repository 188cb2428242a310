package redact

import (
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

func sequenceOfRune(r rune, length int8) sequence {
	var b [utf8.UTFMax]byte
	n := utf8.EncodeRune(b[:], r)
	return sequence{bytes: gramOf(b[:]), width: int8(n), length: length}
}

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
		a, b, c, d := hexDigits[text[2]], hexDigits[text[3]], hexDigits[text[4]], hexDigits[text[5]]
		if text[0] != '\\' || text[1] != 'u' || a|b|c|d == noDigit {
			return -1, false
		}
		return rune(a)<<12 | rune(b)<<8 | rune(c)<<4 | rune(d), false
	}
	for i, c := range text {
		if i == 0 && c != '\\' || i == 1 && c != 'u' || i > 1 && hexDigits[c] == noDigit {
			return -1, false
		}
	}
	return -1, true
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
