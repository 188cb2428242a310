package redact

import "math/bits"

// layer is a text in which values are looked for: the source itself, or what a decoder makes of another layer. Positions
// count from the beginning of the layer; what is before from is no longer needed.
type layer struct {
	stream   *Stream
	known    *patterns
	parent   *layer
	children []*layer
	decoder  decoder

	text       []byte
	base, from int64
	lanes      [lanes]lane
	// firstLane is the first one that is read.
	firstLane int
	// sample is the next position that the filter looks at.
	sample int64
	// cuts are the line ends that ended a lane, of what was read last.
	cuts []int64

	// The rest is for layers with a parent. read is how far its text is decoded. An inactive layer has the same text as its
	// parent, as far as it matters, and reads nothing.
	isActive bool
	read     int64
	// isPending says that the decoder waits for the rest of a sequence.
	isPending bool
	// units are the sequences that the decoder replaced. escaped is where the last of them ends, here and in the parent.
	units         []unit
	escaped       int64
	escapedParent int64
}

// unit is a sequence of the parent at src that became bytes at at. What follows a unit is as in the parent.
type unit struct {
	at, src          int64
	width, srcLength int8
}

func (l *layer) end() int64 { return l.base + int64(len(l.text)) }

// add takes a new layer below this one.
func (l *layer) add(d decoder) *layer {
	c := &layer{stream: l.stream, known: l.known, parent: l, decoder: d}
	if d.isDigitsOnly() {
		c.firstLane = hexLane
	}
	l.children = append(l.children, c)
	return c
}

// undecided says where the end of a text begins that isn't decided: the end of the text if all is. An occurrence may begin
// at live, so that the text from there on is kept. From held on enough of one is there to hold it back.
type undecided struct{ live, held int64 }

func (u undecided) min(other undecided) undecided {
	return undecided{live: min(u.live, other.live), held: min(u.held, other.held)}
}

// advance reads what is new in the text, of which the part from start on is.
func (l *layer) advance(start int64, isLast bool) undecided {
	if l.parent == nil && l.known.isEmpty() {
		l.from = l.end()
		return undecided{live: l.from, held: l.from}
	}
	l.cuts = l.cuts[:0]
	l.look()
	at := undecided{live: l.end(), held: l.end()}
	if !isLast {
		at = l.undecided(at)
	}
	for _, c := range l.children {
		at = at.min(c.pull(start, isLast))
	}
	l.from = max(l.from, at.live)
	return undecided{live: l.from, held: max(l.from, at.held)}
}

// undecided lowers at to what the lanes of this layer haven't decided.
func (l *layer) undecided(at undecided) undecided {
	// A window that begins here is not known to the filter. The byte before may have the first bits of a value.
	unknown := l.sample - (window - gram) - 1
	for i := l.firstLane; i < lanes; i++ {
		start, depth := l.live(i, unknown)
		at.live = min(at.live, start)
		if depth >= l.heldDepth(i) {
			at.held = min(at.held, start)
		}
	}
	return at
}

// heldDepth is how many bytes of an occurrence must be there before it is held back. Text has the digits of any one or two
// bytes often, where they mean something else: above all at the end of a line, after which the reader waits for nothing.
func (l *layer) heldDepth(lane int) int32 {
	switch {
	case l.stream.isExact:
		return 0
	case lane < hexLane:
		return 1
	case l.firstLane == plainLane:
		return heldDigits
	default:
		return heldOverLineEnd
	}
}

// look reads what is open, and what the filter says.
func (l *layer) look() {
	for i := l.firstLane; i < lanes; i++ {
		if l.lanes[i].isOpen {
			l.run(i)
		}
	}
	l.scan()
}

// scan asks the filter where to read.
func (l *layer) scan() {
	f := l.known.filter
	text := l.text
	i := int(max(l.sample, l.from) - l.base)
	for i+window <= len(text) {
		i += f.skip(text[i:])
		if i+window > len(text) {
			break
		}
		l.try(l.base+int64(i), f.hintsOf(text[i:]))
		i += stride
	}
	l.sample = l.base + int64(i)
	if i+gram <= len(text) {
		// Some of its windows are complete. The sample is looked at again for the others.
		l.try(l.sample, f.hintsOf(text[i:]))
	}
}

// try reads the lanes in which an occurrence can begin around a sample, in the order of the beginnings.
func (l *layer) try(sample int64, hints uint32) {
	for ; hints != 0; hints &= hints - 1 {
		hint := bits.TrailingZeros32(hints)
		start, kind := sample-int64(stride-1-hint/kinds), hint%kinds
		if start+window > l.end() {
			return
		}
		if start < l.from || !l.known.filter.hasWindow(kind, l.text[start-l.base:]) {
			continue
		}
		switch kind {
		case plain:
			l.open(plainLane, start)
		case hexadecimal:
			l.open(hexLane+int(start&1), start)
		case base64Phase0:
			l.open(base64Lane+int(start&3), start)
		case base64Phase1:
			l.open(base64Lane+int((start-2)&3), start-1)
		case base64Phase2:
			l.open(base64Lane+int((start-3)&3), start-1)
		}
	}
}

// open reads a lane from start on, unless that is done.
func (l *layer) open(i int, start int64) {
	n := &l.lanes[i]
	if i < l.firstLane || start < n.pos || start < l.from {
		return
	}
	*n = lane{pos: start, isOpen: true}
	if align := int64(i - base64Lane); align >= 0 && (start-align)&3 != 0 {
		// The first character has bits of the byte before.
		digit := base64Digits[l.text[start-l.base]]
		if digit == noDigit {
			n.stop(start + 1)
			return
		}
		_, n.carry = base64Byte(0, digit, start-align)
		n.pos++
	}
	l.run(i)
}

// found reports an occurrence to the stream.
func (l *layer) found(start, end int64, form int32) {
	for at := l; at.parent != nil; at = at.parent {
		start, end = at.parentStart(start), at.parentStart(end-1)+at.parentLength(end-1)
	}
	l.stream.found(span{start: start, end: end, form: l.known.automaton.forms[form], named: start})
}

// unitBefore returns the index of the last unit that begins at or before a position. There is one: the first begins the
// layer.
func (l *layer) unitBefore(pos int64) int {
	low, high := 0, len(l.units)
	for high-low > 1 {
		if middle := (low + high) / 2; l.units[middle].at <= pos {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// parentStart returns the position in the parent of what is at pos.
func (l *layer) parentStart(pos int64) int64 {
	u := &l.units[l.unitBefore(pos)]
	if after := pos - u.at - int64(u.width); after >= 0 {
		return u.src + int64(u.srcLength) + after
	}
	return u.src
}

// parentLength returns how long in the parent is what is at pos.
func (l *layer) parentLength(pos int64) int64 {
	if u := &l.units[l.unitBefore(pos)]; pos < u.at+int64(u.width) {
		return int64(u.srcLength)
	}
	return 1
}

// pull decodes what is new in the parent, of which the part from start on is, and reads it. It returns what isn't decided
// of the parent.
func (l *layer) pull(start int64, isLast bool) undecided {
	p := l.parent
	if !l.isActive {
		if !l.decoder.isNeeded(p.text[start-p.base:]) {
			return undecided{live: p.end(), held: p.end()}
		}
		l.activate()
	}
	if l.read < p.from {
		l.read = p.from
		l.decoder.reset()
	}
	decoded := l.end()
	l.isPending = l.decoder.decode(l, isLast)
	at := l.advance(decoded, isLast)
	return undecided{live: l.undecidedOfParent(at.live), held: l.undecidedOfParent(at.held)}
}

// undecidedOfParent returns where in the parent the part begins that isn't decided from pos on here.
func (l *layer) undecidedOfParent(pos int64) int64 {
	if pos == l.end() && !l.isPending {
		return l.parent.end()
	}
	return min(l.parentStart(pos), l.read)
}

// activate begins with the part of the parent that is not decided. It may begin within a sequence that this layer has
// decoded before: that is over.
func (l *layer) activate() {
	l.isActive = true
	l.base = l.end()
	l.from, l.sample, l.text = l.base, l.base, l.text[:0]
	l.lanes = [lanes]lane{}
	l.read = max(l.parent.from, l.escapedParent)
	l.units = append(l.units[:0], unit{at: l.base, src: l.read})
}

// A layer stays active while its parent holds back more than this, since becoming active means decoding all of that.
const maxReread = 1 << 10

// trim drops what is no longer needed, here and below.
func (l *layer) trim() {
	// Joined lines may wait for the rest of a line end, too.
	isUsed := l.isPending || l.escaped > l.from || l.firstLane != plainLane && l.from < l.end()
	for _, c := range l.children {
		if c.isActive {
			c.trim()
			isUsed = isUsed || c.isActive
		}
	}
	if l.parent != nil && !isUsed && l.parent.end()-l.parent.from <= maxReread {
		l.isActive = false
		l.decoder.reset()
		return
	}
	done := int(l.from - l.base)
	if l == l.stream.source {
		// What isn't written is needed too.
		done = int(min(l.from, l.stream.written) - l.base)
	}
	if done < len(l.text)-done {
		return
	}
	l.text = l.text[:copy(l.text, l.text[done:])]
	l.base += int64(done)
	if l.parent != nil {
		// The last unit before the text stays.
		l.units = l.units[:copy(l.units, l.units[l.unitBefore(l.base):])]
	}
}

// restart forgets the text.
func (l *layer) restart() {
	l.base = l.end()
	l.from, l.sample, l.text = l.base, l.base, l.text[:0]
	l.lanes = [lanes]lane{}
	l.isPending = false
	if l.parent != nil {
		l.isActive = false
		l.decoder.reset()
	}
	for _, c := range l.children {
		c.restart()
	}
}

// replace adds what a decoder made of a sequence of the parent.
func (l *layer) replace(with []byte, srcLength int8) {
	l.units = append(l.units, unit{at: l.end(), src: l.read, width: int8(len(with)), srcLength: srcLength})
	l.text = append(l.text, with...)
	l.read += int64(srcLength)
	l.escaped, l.escapedParent = l.end(), l.read
}

// pass adds bytes of the parent as they are.
func (l *layer) pass(text []byte) {
	l.text = append(l.text, text...)
	l.read += int64(len(text))
}
