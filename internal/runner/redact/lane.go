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
	plainLane  = 0
	hexLane    = 1
	base64Lane = 3
	lanes      = 7
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
		l.runPlain(&l.lanes[i])
	case i < base64Lane:
		l.runHex(&l.lanes[i])
	default:
		l.runBase64(&l.lanes[i], int64(i-base64Lane))
	}
}

func (l *layer) runPlain(n *lane) {
	a := l.known.automaton
	for ; n.pos < l.end(); n.pos++ {
		before := a.nodes[n.state].depth
		n.state = a.step(n.state, l.text[n.pos-l.base])
		at := &a.nodes[n.state]
		if at.out != 0 {
			l.found(n.pos+1-int64(a.forms[at.out-1].length), n.pos+1, at.out-1)
		}
		if at.depth <= before && at.depth < plainDepth {
			n.stop(n.pos + 1 - int64(at.depth))
			return
		}
	}
}

func (l *layer) runHex(n *lane) {
	a := l.known.automaton
	for ; n.pos+1 < l.end(); n.pos += 2 {
		b, ok := hexByte(l.text[n.pos-l.base:])
		if !ok {
			l.cut(n, &hexDigits)
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
		l.cut(n, &hexDigits)
	}
}

// cut stops a lane before a character that is no digit, and notes it if it is a line end: more may follow it.
func (l *layer) cut(n *lane, digits *[256]byte) {
	at := n.pos
	if digits[l.text[at-l.base]] != noDigit {
		at++
	}
	if c := l.text[at-l.base]; c == '\n' || c == '\r' {
		l.cuts = append(l.cuts, at)
	}
	n.stop(n.pos + 1)
}

func (l *layer) runBase64(n *lane, align int64) {
	a := l.known.automaton
	for ; n.pos < l.end(); n.pos++ {
		digit := base64Digits[l.text[n.pos-l.base]]
		if digit == noDigit {
			l.cut(n, &base64Digits)
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

// live returns where an occurrence may begin that is not decided at the end of the text, the end if there is none, and how
// many whole bytes of it are there. The filter knows nothing yet of windows that begin at or after unknown.
func (l *layer) live(i int, unknown int64) (start int64, depth int32) {
	n := &l.lanes[i]
	from := max(n.pos, unknown, l.from)
	if n.isOpen {
		depth = l.depth(n.state)
	}
	switch {
	case i < hexLane:
		if n.isOpen {
			return n.pos - int64(depth), depth
		}
		return l.livePlain(from)
	case i < base64Lane:
		if n.isOpen {
			return n.pos - 2*int64(depth), depth
		}
		return l.liveHex(from + (from+int64(i-hexLane))&1)
	default:
		align := int64(i - base64Lane)
		if n.isOpen {
			return base64Start(n.pos, align, depth), depth
		}
		return l.liveBase64(from, align)
	}
}

// depth is how long the longest end of the text is that can go on to be a form. What has ended can't.
func (l *layer) depth(state int32) int32 {
	nodes := l.known.automaton.nodes
	for state != 0 && !nodes[state].hasNext && !nodes[state].hasBranches {
		state = nodes[state].fail
	}
	return nodes[state].depth
}

func (l *layer) livePlain(pos int64) (start int64, depth int32) {
	a, state := l.known.automaton, int32(0)
	for ; pos < l.end(); pos++ {
		state = a.step(state, l.text[pos-l.base])
	}
	depth = l.depth(state)
	return pos - int64(depth), depth
}

func (l *layer) liveHex(pos int64) (start int64, depth int32) {
	a, state := l.known.automaton, int32(0)
	for ; pos+1 < l.end(); pos += 2 {
		b, ok := hexByte(l.text[pos-l.base:])
		if !ok {
			state = 0
			continue
		}
		state = a.step(state, b)
	}
	depth = l.depth(state)
	if pos >= l.end() {
		return l.end() - 2*int64(depth), depth
	}
	// One digit is left.
	digit := hexDigits[l.text[pos-l.base]]
	if digit == noDigit || depth == 0 && !l.canBegin(digit, 4) {
		return l.end(), 0
	}
	return pos - 2*int64(depth), depth
}

func (l *layer) liveBase64(pos, align int64) (start int64, depth int32) {
	a, state := l.known.automaton, int32(0)
	carry, hasCarry := byte(0), false
	for ; pos < l.end(); pos++ {
		digit := base64Digits[l.text[pos-l.base]]
		if digit == noDigit {
			state, hasCarry = 0, false
			continue
		}
		b, rest := base64Byte(carry, digit, pos-align)
		if hasCarry {
			state = a.step(state, b)
		}
		carry, hasCarry = rest, (pos-align)&3 != 3
	}
	depth = l.depth(state)
	bits := [...]int{0, 6, 4, 2}[(pos-align)&3]
	if depth == 0 && !(hasCarry && l.canBegin(carry, bits)) {
		return pos, 0
	}
	return base64Start(pos, align, depth), depth
}

// canBegin reports whether a value begins with these bits.
func (l *layer) canBegin(bits byte, n int) bool {
	return n > 0 && l.known.filter.first[n]>>bits&1 != 0
}
