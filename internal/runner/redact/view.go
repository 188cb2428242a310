package redact

import (
	"bytes"
	"cmp"
	"slices"
)

// view is what a layer has that decodes its parent. It decodes only segments of the parent: where an escape may be in an
// occurrence. Elsewhere the text is that of the parent.
type view struct {
	notation notation
	finder   *finder
	// isActive says that there is a segment, which begins at the base of the layer.
	isActive bool
	// read is how far the parent is looked at. The escape that led to the segment is at cause. escaped is where the last
	// escape ends, here and in the parent.
	read, cause            int64
	escaped, escapedParent int64
	// isPending says that what is at read waits for the rest of an escape.
	isPending bool
	units     []unit
	// nextPlace is the index of the finder's next place, nextRun that of the first run of the parent that isn't passed.
	nextPlace, nextRun int
}

// unit is an escape of the parent at src that became bytes at at. What follows a unit is as in the parent.
type unit struct {
	at, src          int64
	width, srcLength int8
}

// run is a part of a text that may belong to an occurrence, up to a character that may belong to an escape.
type run struct{ start, at int64 }

const (
	// lookBack is how many characters before an escape can be in a window with it: each after a line end.
	lookBack = 3 * window
	// minStep is how much a segment decodes at first after the escape that led to it.
	minStep = 3 * window
	// lookAhead is how many bytes tell whether an occurrence may begin at an escape.
	lookAhead = 12
)

// pull reads what is new in the parent. It returns what isn't decided of the parent.
func (l *layer) pull(isLast bool) undecided {
	p := l.parent
	if l.finder.notation == l.notation {
		l.finder.find(isLast)
	}
	l.nextPlace, l.nextRun = 0, 0
	if l.read < p.from {
		l.isActive, l.read = false, p.from
	}
	for step := int64(minStep); ; step *= 2 {
		if !l.isActive {
			if !l.seek(isLast) {
				return undecided{live: p.end(), held: p.end()}
			}
			step = minStep
		}
		isEnd := l.decode(max(l.read, l.cause)+step, isLast)
		l.look(isLast && isEnd)
		below := l.pullAll(isLast && isEnd)
		if isEnd {
			at := l.decide(below, isLast)
			return undecided{live: l.undecidedOfParent(at.live), held: l.undecidedOfParent(at.held)}
		}
		l.endSegment()
	}
}

// endSegment ends a segment in which nothing can go on. What the filter doesn't know of it is looked at again.
func (l *layer) endSegment() {
	next := l.parentStart(l.unknown())
	isOpen := slices.ContainsFunc(l.lanes[:], func(n lane) bool { return n.isOpen })
	if next <= max(l.cause, l.finder.first) || isOpen || slices.ContainsFunc(l.children, func(c *layer) bool { return c.isActive }) {
		return
	}
	l.isActive, l.read, l.escapedParent = false, next, next
	for l.nextPlace > 0 && l.parent.base+int64(l.finder.places[l.nextPlace-1].at) >= next {
		l.nextPlace--
	}
	for l.nextRun > 0 && l.parent.runs[l.nextRun-1].at >= next {
		l.nextRun--
	}
}

// seek begins a segment at the next escape that may be in an occurrence. It returns false if there is none.
func (l *layer) seek(isLast bool) bool {
	p := l.parent
	for ; l.nextPlace < len(l.finder.places); l.nextPlace++ {
		one := &l.finder.places[l.nextPlace]
		pos := p.base + int64(one.at)
		if one.isPassed || pos < max(l.read, l.escapedParent) {
			continue
		}
		s := l.notation.parse(p.text, int(one.at), isLast)
		if s.length == 0 && !s.isCut {
			continue
		}
		start, isRun := l.runAt(pos)
		mayBegin, isKnown := l.mayBegin(int(one.at), s)
		if isRun || s.isCut || mayBegin {
			l.begin(max(min(start, pos-lookBack), l.escapedParent, p.base+int64(one.after), p.from), pos)
			return true
		}
		one.isPassed = isKnown && s.bytes != '\\'
		l.escapedParent = pos + int64(s.length)
	}
	l.read = p.end()
	return false
}

// runAt returns where the run begins that has a position of the parent. Positions come in order.
func (l *layer) runAt(pos int64) (start int64, isRun bool) {
	runs := l.parent.runs
	for l.nextRun < len(runs) && runs[l.nextRun].at < pos {
		l.nextRun++
	}
	if l.nextRun < len(runs) && runs[l.nextRun].start <= pos {
		return runs[l.nextRun].start, true
	}
	return pos, false
}

// mayBegin reports whether the first window of an occurrence may have an escape, which is the first one in it. Either four
// characters of the window are before it, or four begin with it or after it: a window of base64 can have it just before.
// isKnown says that this holds too if what is decoded is decoded again.
func (l *layer) mayBegin(at int, s sequence) (may, isKnown bool) {
	p := l.parent
	if s.width == 1 && p.known.filter.uses[byte(s.bytes)] != inWindow && (len(l.children) == 0 || !l.finder.mayJoin(at, s)) {
		return false, true
	}
	if at-gram >= int(p.from-p.base) && l.mayHave(gramOf(p.text[at-gram:])) {
		return true, true
	}
	if l.hasLineEnd(at, s) {
		return true, true
	}
	ahead := at
	if s.width == 0 {
		ahead += int(s.length)
	}
	if word, isSimple := l.decodeAhead(ahead); isSimple {
		return l.mayHave(uint32(word)) || l.mayHave(uint32(word>>8)), true
	}
	return l.mayBeginSlowly(at), false
}

// decodeAhead returns five bytes of the view, the first one lowest, if each is a character or an escape of one, and none of a
// line end or a backslash.
func (l *layer) decodeAhead(at int) (word uint64, isSimple bool) {
	text := l.parent.text
	for i := 0; i < 8*(gram+1); i += 8 {
		if at >= len(text) {
			return 0, false
		}
		c := text[at]
		at++
		if isEscape[c] {
			if c != l.finder.begin || c == '\n' {
				return 0, false
			}
			s := l.notation.parse(text, at-1, false)
			if s.isCut || s.width > 1 {
				return 0, false
			}
			if s.width == 1 {
				c = byte(s.bytes)
				at += int(s.length) - 1
			}
			if c == '\n' || c == '\r' || c == '\\' {
				return 0, false
			}
		}
		word |= uint64(c) << i
	}
	return word, true
}

// mayHave reports whether a gram may be in a window. Joined lines have digits only.
func (l *layer) mayHave(word uint32) bool {
	hints := l.known.filter.hintsOf(word)
	return hints != 0 && (!l.isJoined() || hints&digitHints != 0)
}

// isEscape has the characters that escapes begin with.
var isEscape = [256]bool{'%': true, '\\': true, '\n': true, '\r': true}

// hasLineEnd reports whether an occurrence with line ends may have one before an escape, and in the same window.
func (l *layer) hasLineEnd(at int, s sequence) bool {
	if len(l.children) == 0 || at == 0 || s.width == 1 && !isJoinable(byte(s.bytes)) {
		return false
	}
	text := l.parent.text
	return isJoinable(text[at-1]) && (text[at-1] == '\r' || bytes.IndexByte(text[max(0, at-lookBack):at], '\n') >= 0)
}

// isJoinable reports whether joined lines are made of a character.
func isJoinable(c byte) bool { return base64Digits[c] != noDigit || c == '\n' || c == '\r' }

// mayBeginSlowly is mayBegin where several escapes or line ends are near.
func (l *layer) mayBeginSlowly(at int) bool {
	text := l.parent.text
	var buf [lookAhead + longestEscape]byte
	ahead := buf[:0]
	width := -1
	for len(ahead) < lookAhead {
		if at == len(text) {
			return true
		}
		one := l.next(text, at)
		if one.isCut {
			return true
		}
		ahead = one.appendTo(ahead)
		at += int(one.length)
		if width < 0 {
			width = int(one.width)
		}
	}
	if l.mayHaveAny(ahead, width, ^uint32(0)) {
		return true
	}
	joined := slices.DeleteFunc(ahead, func(c byte) bool { return c == '\n' || c == '\r' })
	return len(joined) < lookAhead && l.mayHaveAny(joined, width, digitHints)
}

// next decodes what is at an index of the parent's text: a character that begins no escape is itself.
func (l *layer) next(text []byte, at int) sequence {
	if text[at] == l.finder.begin || text[at] == '\r' && l.isJoined() {
		if s := l.notation.parse(text, at, false); s.isCut || s.length > 0 {
			return s
		}
	}
	return sequenceOf(text[at], 1)
}

// mayHaveAny reports whether a gram with some hints may be in a window that begins in the first bytes, or after them.
// Without enough bytes it may.
func (l *layer) mayHaveAny(text []byte, width int, hints uint32) bool {
	for i := range width + 1 {
		if i+gram > len(text) || l.known.filter.hintsOf(gramOf(text[i:]))&hints != 0 {
			return true
		}
	}
	return false
}

// begin begins a segment of the parent that has nothing to do with what was before.
func (l *layer) begin(start, cause int64) {
	l.restart()
	l.isActive = true
	l.read, l.cause = start, cause
	l.escaped = l.base
	l.units = append(l.units[:0], unit{at: l.base, src: start})
}

// decode adds the parent's text from read to a position, or more if an escape goes on. It returns true at the end of the
// text, or at an escape that is cut there.
func (l *layer) decode(to int64, isLast bool) (isEnd bool) {
	p := l.parent
	text := p.text[:min(to, p.end())-p.base]
	l.isPending = false
	for {
		at := int(l.read - p.base)
		if at >= len(text) {
			return l.read == p.end()
		}
		next := nextEscape(text[at:], l.finder.begin)
		if next < 0 {
			l.pass(text[at:])
			continue
		}
		s := l.notation.parse(p.text, at+next, isLast)
		switch {
		case s.isCut:
			l.pass(text[at : at+next])
			l.isPending = !l.isJoined()
			return true
		case s.length == 0:
			l.pass(text[at : at+next+1])
		default:
			l.pass(text[at : at+next])
			l.replace(s)
		}
	}
}

// replace adds what an escape stands for.
func (l *layer) replace(s sequence) {
	l.units = append(l.units, unit{at: l.end(), src: l.read, width: s.width, srcLength: s.length})
	l.text = s.appendTo(l.text)
	l.read += int64(s.length)
	l.escaped, l.escapedParent = l.end(), l.read
}

// pass adds bytes of the parent as they are.
func (l *layer) pass(text []byte) {
	l.text = append(l.text, text...)
	l.read += int64(len(text))
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
	if l.isDecoded(pos) {
		return int64(l.units[l.unitBefore(pos)].srcLength)
	}
	return 1
}

// isDecoded reports whether what is at pos is of an escape.
func (l *layer) isDecoded(pos int64) bool {
	if l.parent == nil {
		return false
	}
	u := &l.units[l.unitBefore(pos)]
	return pos < u.at+int64(u.width)
}

// undecidedOfParent returns where in the parent the part begins that isn't decided from pos on here.
func (l *layer) undecidedOfParent(pos int64) int64 {
	if pos == l.end() && !l.isPending {
		return l.parent.end()
	}
	return min(l.parentStart(pos), l.read)
}

// addRun notes that what begins at start may be an occurrence that goes on at a position with an escape. Runs of joined
// lines are those of the parent, for the views that decode escapes and join lines.
func (l *layer) addRun(start, at int64) {
	if l.isJoined() {
		l.parent.runs = append(l.parent.runs, run{l.parentStart(start), l.parentStart(at)})
		return
	}
	l.runs = append(l.runs, run{start, at})
}

// joinRuns sorts the runs, and makes one of those that overlap.
func (l *layer) joinRuns() {
	if len(l.runs) < 2 {
		return
	}
	slices.SortFunc(l.runs, func(a, b run) int { return cmp.Compare(a.start, b.start) })
	n := 0
	for _, one := range l.runs[1:] {
		if last := &l.runs[n]; one.start <= last.at {
			last.at = max(last.at, one.at)
			continue
		}
		n++
		l.runs[n] = one
	}
	l.runs = l.runs[:n+1]
}
