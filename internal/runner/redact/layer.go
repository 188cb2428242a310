package redact

import (
	"encoding/binary"
	"math/bits"
)

// layer is a text in which values are looked for: the source itself, or what a view makes of another layer. Positions
// count from the beginning of the layer; what is before from is no longer needed.
type layer struct {
	stream   *Stream
	known    *patterns
	parent   *layer
	children []*layer
	view

	text       []byte
	base, from int64
	lanes      [lanes]lane
	// reads has a bit for each lane that is read.
	reads uint8
	// sample is the next position that the filter looks at.
	sample int64
	// runs are of what was read last. isLast says that nothing follows it.
	runs   []run
	isLast bool
}

// newSource returns the layer of a text, with all ways to decode it.
func newSource(s *Stream, known *patterns) *layer {
	source := &layer{stream: s, known: known, reads: textLanes | digitLanes}
	if known.hasSpace {
		source.reads |= 1 << spacedLane
	}
	// The runs of joined lines are for the others.
	source.add(lineEnds{}, '\n', digitLanes)
	source.add(percent{}, '%', source.reads).add(lineEnds{}, '\n', digitLanes)
	once := source.add(jsonString{}, '\\', textLanes|digitLanes)
	once.add(lineEnds{}, '\n', digitLanes)
	source.add(jsonTwice{}, '\\', textLanes|digitLanes).finder = once.finder
	return source
}

// add takes a new layer below this one, with escapes that begin with a character.
func (l *layer) add(n notation, begin byte, reads uint8) *layer {
	c := &layer{stream: l.stream, known: l.known, parent: l, reads: reads}
	c.view = view{notation: n, finder: &finder{notation: n, text: l, filter: l.known.filter, begin: begin}}
	l.children = append(l.children, c)
	return c
}

// isJoined says that the layer has joined lines, and so that only digits are of interest.
func (l *layer) isJoined() bool { return l.reads>>plainLane&1 == 0 }

func (l *layer) end() int64 { return l.base + int64(len(l.text)) }

// undecided says where the end of a text begins that isn't decided: the end of the text if all is. An occurrence may begin
// at live, so that the text from there on is kept. From held on enough of one is there to hold it back.
type undecided struct{ live, held int64 }

func (u undecided) min(other undecided) undecided {
	return undecided{live: min(u.live, other.live), held: min(u.held, other.held)}
}

// advance reads what is new in the text of a source.
func (l *layer) advance(isLast bool) undecided {
	l.look(isLast)
	return l.decide(l.pullAll(isLast), isLast)
}

// look reads what is new in the text: what is open, and where the filter says.
func (l *layer) look(isLast bool) {
	l.runs, l.isLast = l.runs[:0], isLast
	for i := range lanes {
		if l.lanes[i].isOpen {
			l.run(i)
		}
	}
	l.scan()
}

// pullAll has the layers below read. It returns what they haven't decided.
func (l *layer) pullAll(isLast bool) undecided {
	at := undecided{live: l.end(), held: l.end()}
	for _, c := range l.children {
		at = at.min(c.pull(isLast))
	}
	return at
}

// decide returns what isn't decided here and below, and drops the rest.
func (l *layer) decide(below undecided, isLast bool) undecided {
	at := below
	if !isLast {
		at = l.undecided(at)
	}
	l.from = max(l.from, at.live)
	return undecided{live: l.from, held: max(l.from, at.held)}
}

// unknown is where the windows begin that the filter doesn't know. The byte before may have the first bits of a value.
func (l *layer) unknown() int64 { return l.sample - (window - gram) - 1 }

// undecided lowers at to what the lanes of this layer haven't decided.
func (l *layer) undecided(at undecided) undecided {
	a, unknown := l.known.automaton, l.unknown()
	for i := range lanes {
		if l.reads>>i&1 == 0 {
			continue
		}
		state, pos, hasPart := l.tail(i, unknown)
		if depth := a.depth(state); depth > 0 || hasPart {
			at.live = min(at.live, laneStart(i, pos, depth))
		}
		if depth := a.ownDepth(state); depth >= l.heldDepth(i) && (depth > 0 || hasPart) {
			at.held = min(at.held, laneStart(i, pos, depth))
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
	case !l.isJoined():
		return heldDigits
	default:
		return heldOverLineEnd
	}
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
		if l.try(l.base+int64(i), f.hintsOf(gramOf(text[i:]))) {
			i = lastAlike(text, i)
		}
		i += stride
	}
	l.sample = l.base + int64(i)
	if i+gram <= len(text) {
		// Some of its windows are complete. The sample is looked at again for the others.
		l.try(l.sample, f.hintsOf(gramOf(text[i:])))
	}
}

// lastAlike returns the last one of the samples from an index on that have the same characters around them: all those of the
// windows that have the sample.
func lastAlike(text []byte, at int) int {
	for at >= stride-1 && at+stride+window <= len(text) {
		before, after := text[at-(stride-1):], text[at:]
		if !isRepeated(before) || !isRepeated(after) {
			break
		}
		at += stride
	}
	return at
}

// isRepeated reports whether the first eight characters are there a stride later, too.
func isRepeated(text []byte) bool {
	return binary.LittleEndian.Uint64(text) == binary.LittleEndian.Uint64(text[stride:])
}

// try reads the lanes in which an occurrence can begin around a sample, in the order of the beginnings. It returns true if it
// has looked at all windows there, and none can begin an occurrence.
func (l *layer) try(sample int64, hints uint32) (isNothing bool) {
	isNothing = true
	for ; hints != 0; hints &= hints - 1 {
		hint := bits.TrailingZeros32(hints)
		start, kind := sample-int64(stride-1-hint/kinds), hint%kinds
		if start+window > l.end() {
			return false
		}
		if start < l.from {
			isNothing = false
			continue
		}
		if !l.known.filter.hasWindow(kind, l.text[start-l.base:]) {
			continue
		}
		isNothing = false
		switch kind {
		case plain:
			l.open(plainLane, start)
		case spaced:
			l.open(spacedLane, start)
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
	return isNothing
}

// open reads a lane from start on, unless that is done.
func (l *layer) open(i int, start int64) {
	n := &l.lanes[i]
	if l.reads>>i&1 == 0 || start < n.pos || start < l.from {
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

// trim drops what is no longer needed, here and below.
func (l *layer) trim() {
	isUsed := l.parent == nil || l.isPending || l.escaped > l.from
	// Joined lines may wait for the rest of a line end, too.
	isUsed = isUsed || l.isJoined() && l.from < l.end()
	for _, c := range l.children {
		if c.isActive {
			c.trim()
			isUsed = isUsed || c.isActive
		}
	}
	if !isUsed {
		l.isActive = false
		return
	}
	done := int(l.from - l.base)
	if l.parent == nil {
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
	l.isActive, l.isPending = false, false
	for _, c := range l.children {
		c.restart()
		c.read, c.escapedParent, c.finder.next, c.finder.escaped = l.base, l.base, l.base, l.base
	}
}
