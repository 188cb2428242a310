package redact

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder makes the text of a layer of that of its parent.
type decoder interface {
	// isNeeded reports whether there is anything to decode in a part of a text.
	isNeeded(text []byte) bool
	// decode reads the parent's text from l.read on. It returns true if the end waits for more. With isLast nothing waits.
	decode(l *layer, isLast bool) (isPending bool)
	// reset forgets what was before.
	reset()
	// isDigitsOnly says that only hexadecimal digits and base64 are of interest.
	isDigitsOnly() bool
}

// rest returns what is not decoded of the parent.
func (l *layer) rest() []byte { return l.parent.text[l.read-l.parent.base:] }

// sequence is what an escape stands for.
type sequence struct {
	bytes [utf8.UTFMax]byte
	width int8
	// length is that of the escape; 0 if there is none.
	length int8
	// isCut says that it may be an escape when more comes.
	isCut bool
}

func sequenceOf(b byte, length int8) sequence {
	return sequence{bytes: [utf8.UTFMax]byte{b}, width: 1, length: length}
}

func sequenceOfRune(r rune, length int8) (s sequence) {
	s.length, s.width = length, int8(utf8.EncodeRune(s.bytes[:], r))
	return s
}

// decodeEscapes replaces the escapes that begin with a character.
func decodeEscapes(l *layer, escape byte, parse func([]byte) sequence, isLast bool) (isPending bool) {
	text := l.rest()
	for {
		at := bytes.IndexByte(text, escape)
		if at < 0 {
			l.pass(text)
			return false
		}
		s := parse(text[at:])
		switch {
		case s.isCut && !isLast:
			l.pass(text[:at])
			return true
		case s.length == 0 || s.isCut:
			at++
			l.pass(text[:at])
			text = text[at:]
		default:
			l.pass(text[:at])
			l.replace(s.bytes[:s.width], s.length)
			text = text[at+int(s.length):]
		}
	}
}

// hasEscape reports whether there is an escape, or the beginning of one at the end.
func hasEscape(text []byte, escape byte, parse func([]byte) sequence) bool {
	for {
		at := bytes.IndexByte(text, escape)
		if at < 0 {
			return false
		}
		if s := parse(text[at:]); s.length > 0 || s.isCut {
			return true
		}
		text = text[at+1:]
	}
}

// percent decodes %XX, and with plus a + as a space.
type percent struct{ plus bool }

func (d *percent) isNeeded(text []byte) bool {
	return hasEscape(text, '%', parsePercent) || d.plus && bytes.IndexByte(text, '+') >= 0
}

func (d *percent) reset() {}

func (d *percent) isDigitsOnly() bool { return false }

func (d *percent) decode(l *layer, isLast bool) bool {
	from := len(l.text)
	units := len(l.units)
	isPending := decodeEscapes(l, '%', parsePercent, isLast)
	if d.plus {
		l.replacePlus(from, units)
	}
	return isPending
}

// replacePlus makes a + a space, from an index in the text on, except in what units stand for.
func (l *layer) replacePlus(from, units int) {
	for i := from; i < len(l.text); i++ {
		next := bytes.IndexByte(l.text[i:], '+')
		if next < 0 {
			return
		}
		i += next
		for units < len(l.units) && l.units[units].at < l.base+int64(i) {
			units++
		}
		if units < len(l.units) && l.units[units].at == l.base+int64(i) {
			continue
		}
		l.text[i] = ' '
		if pos := l.base + int64(i) + 1; pos > l.escaped {
			l.escaped, l.escapedParent = pos, l.parentStart(pos)
		}
	}
}

func parsePercent(text []byte) sequence {
	if b, ok := percentByte(text); ok {
		return sequenceOf(b, 3)
	}
	return sequence{isCut: len(text) == 1 || len(text) == 2 && hexDigits[text[1]] != noDigit}
}

// percentByte decodes %XX at the beginning of a text.
func percentByte(text []byte) (b byte, ok bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	return hexByte(text[1:])
}

// jsonString decodes the escapes of JSON strings, and others that Go, Python and JavaScript write in quoted strings: messages
// have them.
type jsonString struct{}

func (jsonString) isNeeded(text []byte) bool { return hasEscape(text, '\\', parseJSON) }

func (jsonString) reset() {}

func (jsonString) isDigitsOnly() bool { return false }

func (jsonString) decode(l *layer, isLast bool) bool {
	return decodeEscapes(l, '\\', parseJSON, isLast)
}

var jsonEscapes = [256]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/', '\'': '\'', 'a': '\a', 'v': '\v'}

func parseJSON(text []byte) sequence {
	if len(text) < 2 {
		return sequence{isCut: true}
	}
	if b := jsonEscapes[text[1]]; b != 0 {
		return sequenceOf(b, 2)
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
	for i := range 6 {
		if i == len(text) {
			return -1, true
		}
		switch digit := hexDigits[text[i]]; {
		case i == 0 && text[i] == '\\', i == 1 && text[i] == 'u':
		case i > 1 && digit != noDigit:
			r = r<<4 | rune(digit)
		default:
			return -1, false
		}
	}
	return r, false
}

// unwrap joins lines of digits: what a line of base64 or hexadecimal digits ends with, and what the next begins with. The
// rest of the text isn't in the layer, and neither are lines that no value can be in. A line end is \n or \r\n.
type unwrap struct{ isJoined bool }

func (d *unwrap) isNeeded(text []byte) bool {
	return bytes.IndexByte(text, '\n') >= 0 || len(text) > 0 && text[len(text)-1] == '\r'
}

func (d *unwrap) reset() { d.isJoined = false }

func (d *unwrap) isDigitsOnly() bool { return true }

// decode never waits: a line end at the end counts as one that joins, and what is live before it is live.
func (d *unwrap) decode(l *layer, _ bool) bool {
	for {
		if !d.isJoined && !d.join(l) {
			l.read = l.parent.end()
			return false
		}
		if !d.follow(l) {
			return false
		}
	}
}

// join looks for the next line end after a digit, and begins with the digits before it.
func (d *unwrap) join(l *layer) bool {
	for {
		text := l.rest()
		at := bytes.IndexByte(text, '\n')
		if at < 0 {
			at = len(text) - 1
			if at < 0 || text[at] != '\r' {
				return false
			}
		}
		parent := l.parent.text[l.parent.from-l.parent.base : l.read+int64(at)-l.parent.base]
		if text[at] == '\n' && len(parent) > 0 && parent[len(parent)-1] == '\r' {
			parent = parent[:len(parent)-1]
		}
		if !l.mayJoin(parent, text[at:]) {
			l.read += int64(at) + 1
			continue
		}
		first := len(parent)
		for first > 0 && base64Digits[parent[first-1]] != noDigit {
			first--
		}
		if first < len(parent) {
			l.begin(l.parent.from+int64(first), parent[first:])
			d.isJoined = true
			return true
		}
		l.read += int64(at) + 1
	}
}

// mayJoin reports whether a value can go on over a line end. Either a lane of the parent was read up to there, or a window
// has characters of both lines. Of those that begin before the last three characters the filter knows the last four, of
// others four that follow the first one after the line end. A window may also have a whole short line.
func (l *layer) mayJoin(before, after []byte) bool {
	at := l.parent.from + int64(len(before))
	if slices.Contains(l.parent.cuts, at) {
		return true
	}
	after = after[max(1, lineEnd(after)):]
	if len(after) < window {
		return true
	}
	n := len(before)
	if n == 0 || base64Digits[before[n-1]] == noDigit || base64Digits[after[0]] == noDigit {
		return false
	}
	f := l.known.filter
	return n >= gram && f.hasDigits(before[n-gram:]) || f.hasDigits(after[1:]) || isShortLine(before, after)
}

// isShortLine reports whether the text before or after a line end is a line of digits that is shorter than a window.
func isShortLine(before, after []byte) bool {
	n := 0
	for n < window && base64Digits[after[n]] != noDigit {
		n++
	}
	if n < window && (after[n] == '\n' || after[n] == '\r') {
		return true
	}
	n = len(before)
	for n > max(0, len(before)-window) && base64Digits[before[n-1]] != noDigit {
		n--
	}
	return n > 0 && before[n-1] == '\n'
}

// begin begins a piece of text that has nothing to do with what is before it.
func (l *layer) begin(src int64, text []byte) {
	l.units = append(l.units, unit{at: l.end(), src: src, width: 1})
	l.text = append(l.text, '\n')
	l.read = src
	l.pass(text)
}

// follow adds digits and the line ends between them. It returns true at anything else, or when no value is left to go on
// over a line end; false at the end of the text.
func (d *unwrap) follow(l *layer) bool {
	for {
		text := l.rest()
		n := 0
		for n < len(text) && base64Digits[text[n]] != noDigit {
			n++
		}
		l.pass(text[:n])
		text = text[n:]
		length := lineEnd(text)
		switch {
		case len(text) == 0, len(text) == 1 && text[0] == '\r':
			return false
		case length == 0, n == 0 && l.afterLineEnd(), !d.goesOn(l, text):
			d.isJoined = false
			return true
		}
		l.replace(nil, int8(length))
	}
}

// goesOn reports whether a value may go on over the line end that follows.
func (d *unwrap) goesOn(l *layer, after []byte) bool {
	p := l.parent
	if l.mayJoin(p.text[p.from-p.base:l.read-p.base], after) {
		return true
	}
	l.look()
	return slices.ContainsFunc(l.lanes[:], func(n lane) bool { return n.isOpen })
}

func lineEnd(text []byte) int {
	switch {
	case len(text) > 0 && text[0] == '\n':
		return 1
	case len(text) > 1 && text[0] == '\r' && text[1] == '\n':
		return 2
	default:
		return 0
	}
}

// afterLineEnd reports whether the last thing that was decoded is a line end.
func (l *layer) afterLineEnd() bool {
	u := &l.units[len(l.units)-1]
	return u.at == l.end() && u.width == 0
}
