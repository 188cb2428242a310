package redact

// lane is one way to read a layer: as it stands, or as the digits of bytes at one alignment.
type lane struct {
	// pos is the next character to read. The lane need not look again at occurrences that begin before it.
	pos   int64
	state int32
	// isOpen says that an occurrence may have begun that is not decided at the end of the text.
	isOpen bool
	// carry has the bits of the last character of base64 that belong to the next byte.
	carry byte
}

const (
	plainLane = 0
	// spacedLane reads a + as a space, unless it is of an escape.
	spacedLane = 1
	hexLane    = 2
	base64Lane = 4
	lanes      = 8
)

const (
	textLanes  = 1 << plainLane
	digitLanes = 1<<lanes - 1<<hexLane
)

// The automaton stops when it is less deep than this after a mismatch: each is reached by the window that the filter knows.
const (
	plainDepth  = window
	hexDepth    = window / 2
	base64Depth = window * 6 / 8
)

// stop ends reading. What begins at or after pos is looked for again.
func (n *lane) stop(pos int64) { *n = lane{pos: pos} }

// run reads lane i of the layer to the end of the text, or until nothing is left of an occurrence.
func (l *layer) run(i int) {
	switch {
	case i < hexLane:
		l.runText(i)
	case i < base64Lane:
		l.runHex(&l.lanes[i])
	default:
		l.runBase64(&l.lanes[i], int64(i-base64Lane))
	}
}

func (l *layer) runText(i int) {
	a, n := l.known.automaton, &l.lanes[i]
	escapes := run{at: -1}
	for end := l.end(); n.pos < end; n.pos++ {
		c, before := l.text[n.pos-l.base], a.nodes[n.state].depth
		if c == '+' || isEscape[c] {
			var isOpen bool
			if c, isOpen = l.readEscape(i, n.pos-int64(before), &escapes); !isOpen {
				break
			}
		}
		n.state = a.step(n.state, c)
		at := &a.nodes[n.state]
		if at.out != 0 {
			l.found(n.pos+1-int64(a.forms[at.out-1].length), n.pos+1, at.out-1)
		}
		if at.depth <= before && at.depth < plainDepth {
			n.stop(n.pos + 1 - int64(at.depth))
			break
		}
	}
	if escapes.at >= 0 {
		l.addRun(escapes.start, escapes.at)
	}
}

// readEscape reads the next character of a lane, where it can have another meaning. What begins at start may go on there. It
// returns false where the lane can't go on.
func (l *layer) readEscape(i int, start int64, escapes *run) (c byte, isOpen bool) {
	n := &l.lanes[i]
	c, s := l.char(i, n.pos)
	if c == '+' && i == plainLane {
		l.open(spacedLane, start)
	}
	if isEscape[c] {
		if escapes.at < 0 {
			escapes.start = start
		}
		escapes.at = n.pos
	}
	if s.length > 0 {
		n.stop(n.pos + 1)
	}
	return c, s.length == 0 && !s.isCut
}

// char returns the character at a position as lane i reads it, or the escape there if only a view reads that.
func (l *layer) char(i int, pos int64) (byte, sequence) {
	c := l.text[pos-l.base]
	switch {
	case i != spacedLane:
	case c == '+' && !l.isDecoded(pos):
		c = ' '
	case c == '%' && l.parent == nil:
		return c, percent{}.parse(l.text, int(pos-l.base), l.isLast)
	}
	return c, sequence{}
}

func (l *layer) runHex(n *lane) {
	a := l.known.automaton
	for ; n.pos+1 < l.end(); n.pos += 2 {
		b, ok := hexByte(l.text[n.pos-l.base:])
		if !ok {
			l.cut(n, &hexDigits, n.pos-2*int64(a.nodes[n.state].depth))
			return
		}
		before := a.nodes[n.state].depth
		n.state = a.step(n.state, b)
		at := &a.nodes[n.state]
		if at.out != 0 {
			l.found(n.pos+2-2*int64(a.forms[at.out-1].length), n.pos+2, at.out-1)
		}
		if at.depth <= before && at.depth < hexDepth {
			n.stop(n.pos + 2 - 2*int64(at.depth))
			return
		}
	}
	if n.pos < l.end() && hexDigits[l.text[n.pos-l.base]] == noDigit {
		l.cut(n, &hexDigits, n.pos-2*int64(a.nodes[n.state].depth))
	}
}

// cut stops a lane before a character that is no digit. What begins at start can go on after an escape.
func (l *layer) cut(n *lane, digits *[256]byte, start int64) {
	at := n.pos
	if digits[l.text[at-l.base]] != noDigit {
		at++
	}
	if isEscape[l.text[at-l.base]] {
		// In a line end, or after it, may be an escape too.
		l.addRun(start, at+2)
	}
	n.stop(n.pos + 1)
}

func (l *layer) runBase64(n *lane, align int64) {
	a := l.known.automaton
	for ; n.pos < l.end(); n.pos++ {
		digit := base64Digits[l.text[n.pos-l.base]]
		if digit == noDigit {
			l.cut(n, &base64Digits, base64Start(n.pos, align, a.nodes[n.state].depth))
			return
		}
		b, carry := base64Byte(n.carry, digit, n.pos-align)
		n.carry = carry
		if (n.pos-align)&3 == 0 {
			continue
		}
		before := a.nodes[n.state].depth
		n.state = a.step(n.state, b)
		at := &a.nodes[n.state]
		if at.out != 0 {
			l.found(base64Start(n.pos+1, align, a.forms[at.out-1].length), n.pos+1, at.out-1)
		}
		if at.depth <= before && at.depth < base64Depth {
			n.stop(base64Start(n.pos+1, align, at.depth))
			return
		}
	}
}

// hexByte decodes the first two characters.
func hexByte(text []byte) (b byte, ok bool) {
	high, low := hexDigits[text[0]], hexDigits[text[1]]
	return high<<4 | low, high != noDigit && low != noDigit
}

// base64Byte returns the byte that ends within a character, and the bits that the character has of the next. The first
// character of four, by its index, ends none.
func base64Byte(carry, digit byte, index int64) (b, rest byte) {
	switch index & 3 {
	case 0:
		return 0, digit
	case 1:
		return carry<<2 | digit>>4, digit & 0xF
	case 2:
		return carry<<4 | digit>>2, digit & 3
	default:
		return carry<<6 | digit, 0
	}
}

// base64Start returns the character in which the last n bytes begin that end before the character at pos.
func base64Start(pos, align int64, n int32) int64 {
	// One group more keeps everything positive.
	index := pos - align + 4
	ended := index / 4 * 3
	if index&3 > 1 {
		ended += index&3 - 1
	}
	first := ended - int64(n)
	return first/3*4 + first%3 + align - 4
}

// What begins with fewer bytes of a value than these isn't held back: in digits, and in digits with a line end among them.
const (
	heldDigits      = 2
	heldOverLineEnd = 3
)

// tail returns what lane i has read at the end of the text, up to pos, and whether what follows may be a part of the first
// byte of a value. The filter knows nothing yet of windows that begin at or after unknown.
func (l *layer) tail(i int, unknown int64) (state int32, pos int64, hasPart bool) {
	n := &l.lanes[i]
	from := max(n.pos, unknown, l.from)
	switch {
	case n.isOpen:
		return n.state, n.pos, true
	case i < hexLane:
		return l.tailOfText(i, from), l.end(), false
	case i < base64Lane:
		return l.tailOfHex(from + (from+int64(i))&1)
	default:
		return l.tailOfBase64(from, int64(i-base64Lane))
	}
}

// laneStart returns where the last n bytes begin that lane i has read up to pos.
func laneStart(i int, pos int64, n int32) int64 {
	switch {
	case i < hexLane:
		return pos - int64(n)
	case i < base64Lane:
		return pos - 2*int64(n)
	default:
		return base64Start(pos, int64(i-base64Lane), n)
	}
}

func (l *layer) tailOfText(i int, pos int64) (state int32) {
	for ; pos < l.end(); pos++ {
		c, s := l.char(i, pos)
		if s.isCut || s.length > 0 {
			state = 0
			continue
		}
		state = l.known.automaton.step(state, c)
	}
	return state
}

func (l *layer) tailOfHex(from int64) (state int32, pos int64, hasPart bool) {
	for pos = from; pos+1 < l.end(); pos += 2 {
		b, ok := hexByte(l.text[pos-l.base:])
		if !ok {
			state = 0
			continue
		}
		state = l.known.automaton.step(state, b)
	}
	if pos >= l.end() {
		return state, l.end(), false
	}
	// One digit is left.
	digit := hexDigits[l.text[pos-l.base]]
	if digit == noDigit {
		return 0, l.end(), false
	}
	return state, pos, l.canBegin(digit, 4)
}

func (l *layer) tailOfBase64(pos, align int64) (state int32, end int64, hasPart bool) {
	carry, hasCarry := byte(0), false
	for ; pos < l.end(); pos++ {
		digit := base64Digits[l.text[pos-l.base]]
		if digit == noDigit {
			state, hasCarry = 0, false
			continue
		}
		b, rest := base64Byte(carry, digit, pos-align)
		if hasCarry {
			state = l.known.automaton.step(state, b)
		}
		carry, hasCarry = rest, (pos-align)&3 != 3
	}
	bits := [...]int{0, 6, 4, 2}[(pos-align)&3]
	return state, pos, hasCarry && l.canBegin(carry, bits)
}

// canBegin reports whether a value begins with these bits.
func (l *layer) canBegin(bits byte, n int) bool {
	return n > 0 && l.known.filter.first[n]>>bits&1 != 0
}
