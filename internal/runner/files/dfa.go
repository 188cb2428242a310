package files

import "regexp/syntax"

const (
	// maxStateBytes bounds the states of all the lineDFAs of a Grep.
	maxStateBytes = 1 << 20
	// stateOverhead is about what a state takes besides its row and its instructions.
	stateOverhead = 128
	// maxCredit is how many instructions a lineDFA visits at most before it has to be given more.
	maxCredit = 1 << 20
	// bytesPerCredit is how many bytes are searched for each instruction that may be visited, so where new states are needed
	// all the time, building them takes a few nanoseconds a byte.
	bytesPerCredit = 4
	// buildCost is what a transition costs besides the instructions that are visited, in instructions.
	buildCost = 32
)

// Entries of a lineDFA's rows that aren't rows. Row 0 isn't a state's, and each row is longer than this.
const (
	unknown = iota
	matched
)

// What a state knows of the characters before it.
const (
	// atStart is set at the start of a line.
	atStart = 1 << iota
	// afterWord is set behind a character of a word.
	afterWord
	// matchedBeforeReturn is set behind a carriage return before which the line matches if it ends there.
	matchedBeforeReturn
)

// lineDFA finds lines that may match an expression, much faster than the expression does. It is a deterministic automaton
// whose states are built when they are first reached, and forgotten when they take too much memory. Building states is
// paid for with credit, of which it gets some for the bytes that are searched: without credit, it lets every line pass.
//
// A line ends before its line feed, as the text does for the expression, and also before a carriage return that precedes
// the line feed.
type lineDFA struct {
	*dfaProgram
	// next has a row for each state, which is known by the index of its row: where each symbol leads. The last entry of a
	// row, that of bytes outside of ASCII, stays unknown: their number makes a symbol, not their value.
	next []uint32
	// sets has for each row, in their order, what the state is: its flags, and the instructions that go on from there.
	sets []string
	rows map[string]uint32
	// initial is the state at the start of a line, or unknown.
	initial uint32
	// bytes is the size of the states, and limit its bound. resets counts how often they were forgotten.
	bytes, limit, resets int
	credit               int

	// What follows is for building a transition.
	seen, targets instSet
	pending       []uint32
	reached       []uint32
	key           []byte
}

func newLineDFA(p *dfaProgram, limit int) *lineDFA {
	d := &lineDFA{
		dfaProgram: p, rows: map[string]uint32{}, limit: limit, credit: maxCredit,
		seen: newInstSet(len(p.inst)), targets: newInstSet(len(p.inst)),
	}
	d.reset()
	return d
}

// addCredit pays for a search of so many bytes.
func (d *lineDFA) addCredit(bytes int) { d.credit = min(d.credit+bytes/bytesPerCredit, maxCredit) }

// find returns where in data the first line that may match goes on or ends; -1 if there is none. Data starts where a line
// starts, and its last line may lack the line feed.
func (d *lineDFA) find(data []byte) int {
	if d.credit <= 0 {
		return 0
	}
	state, next, columns := d.first(), d.next, &d.columns
	for at := 0; at < len(data); {
		to := next[state+uint32(columns[data[at]])]
		if to > matched {
			state, at = to, at+1
			continue
		}
		column, size := d.symbolAt(data[at:])
		to = d.follow(state, column)
		if to == matched || d.credit <= 0 {
			return at
		}
		state, at, next = to, at+size, d.next
	}
	if len(data) > 0 && data[len(data)-1] != '\n' && d.follow(state, d.feed) == matched {
		return len(data)
	}
	return -1
}

// width is the length of a row.
func (d *lineDFA) width() int { return len(d.symbols) + 1 }

// first returns the state at the start of a line.
func (d *lineDFA) first() uint32 {
	if d.initial == unknown {
		d.initial = d.intern([]byte{atStart})
	}
	return d.initial
}

// follow returns where a symbol leads, and builds the transition if it is unknown.
func (d *lineDFA) follow(state uint32, column int) uint32 {
	entry := int(state) + column
	if to := d.next[entry]; to != unknown {
		return to
	}
	resets := d.resets
	to := d.build(d.sets[int(state)/d.width()], d.symbols[column])
	if d.resets == resets {
		d.next[entry] = to
	}
	return to
}

// build returns where a symbol leads from a state.
func (d *lineDFA) build(set string, symbol rune) uint32 {
	d.credit -= buildCost
	flags := set[0]
	if symbol == '\n' {
		if flags&matchedBeforeReturn != 0 || d.expand(set, symbol) {
			return matched
		}
		return d.first()
	}
	var after byte
	if symbol == '\r' && d.expand(set, '\n') {
		after = matchedBeforeReturn
	}
	if d.expand(set, symbol) {
		return matched
	}
	if d.hasWords && syntax.IsWordChar(symbol) {
		after |= afterWord
	}
	d.targets.clear()
	for _, pc := range d.reached {
		if d.accepts(pc, symbol) {
			d.targets.add(d.inst[pc].Out)
		}
	}
	d.key = d.targets.encode(append(d.key[:0], after))
	return d.intern(d.key)
}

// expand goes on from a state, and from the program's start, to the instructions that read the symbol. It says whether
// the program matches before the symbol.
func (d *lineDFA) expand(set string, symbol rune) bool {
	holds := conditions(set[0], symbol)
	d.seen.clear()
	d.credit -= len(d.seen)
	d.reached = d.reached[:0]
	d.pending = decodeInstructions(append(d.pending[:0], d.start), set[1:])
	for len(d.pending) > 0 {
		last := len(d.pending) - 1
		pc := d.pending[last]
		d.pending = d.pending[:last]
		if !d.seen.add(pc) {
			continue
		}
		d.credit--
		switch inst := &d.inst[pc]; inst.Op {
		case syntax.InstMatch:
			return true
		case syntax.InstAlt, syntax.InstAltMatch:
			d.pending = append(d.pending, inst.Arg, inst.Out)
		case syntax.InstCapture, syntax.InstNop:
			d.pending = append(d.pending, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^holds == 0 {
				d.pending = append(d.pending, inst.Out)
			}
		case syntax.InstFail:
		default:
			d.reached = append(d.reached, pc)
		}
	}
	return false
}

// conditions returns what holds between a state and the next symbol. A line feed ends the text.
func conditions(flags byte, next rune) syntax.EmptyOp {
	before, after := rune(' '), next
	switch {
	case flags&atStart != 0:
		before = -1
	case flags&afterWord != 0:
		before = 'a'
	}
	if next == '\n' {
		after = -1
	} else if next == otherSymbol {
		after = ' '
	}
	return syntax.EmptyOpContext(before, after)
}

// intern returns the state that is a set, and adds it if it is new.
func (d *lineDFA) intern(set []byte) uint32 {
	if row, ok := d.rows[string(set)]; ok {
		return row
	}
	bytes := 4*d.width() + len(set) + stateOverhead
	if d.bytes+bytes > d.limit {
		d.reset()
	}
	d.bytes += bytes
	row, key := uint32(len(d.next)), string(set)
	d.next = append(d.next, make([]uint32, d.width())...)
	d.sets = append(d.sets, key)
	d.rows[key] = row
	return row
}

// reset forgets all states.
func (d *lineDFA) reset() {
	d.resets++
	d.bytes, d.initial = 0, unknown
	d.next = append(d.next[:0], make([]uint32, d.width())...)
	clear(d.sets)
	d.sets = append(d.sets[:0], "")
	clear(d.rows)
}
