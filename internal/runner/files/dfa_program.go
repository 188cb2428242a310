package files

import (
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// otherSymbol stands for every character outside of ASCII, and for every byte that isn't UTF-8.
const otherSymbol rune = -1

// dfaProgram is an expression as a lineDFA runs it. Its input are symbols: the classes of ASCII characters that no
// instruction tells apart, and one symbol for everything else. An instruction that takes some character outside of ASCII
// is taken to accept them all, so the program matches every line that the expression matches, and perhaps more.
type dfaProgram struct {
	inst  []syntax.Inst
	start uint32
	// others are the instructions that accept some character outside of ASCII.
	others instSet
	// hasWords says that an instruction asks for the boundary of a word.
	hasWords bool
	// columns has the symbol of each byte, as an index of symbols. Bytes outside of ASCII have an index behind the last.
	columns [256]uint8
	// symbols has a character of each class. Line feed and carriage return are classes of their own.
	symbols []rune
	// feed and other are the indexes of the line feed and of otherSymbol.
	feed, other int
}

// newDFAProgram compiles an expression to the instructions that package regexp runs.
func newDFAProgram(expr string) (*dfaProgram, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	p := &dfaProgram{inst: prog.Inst, start: uint32(prog.Start), others: newInstSet(len(prog.Inst))}
	p.setSymbols()
	p.setOthers()
	return p, nil
}

// setSymbols divides ASCII where an instruction may tell one character from the next.
func (p *dfaProgram) setSymbols() {
	var starts classStarts
	starts.add('\n', '\n')
	starts.add('\r', '\r')
	for i := range p.inst {
		p.hasWords = starts.addInstruction(&p.inst[i]) || p.hasWords
	}
	for c := range rune(utf8.RuneSelf) {
		if c == 0 || starts[c] {
			p.symbols = append(p.symbols, c)
		}
		p.columns[c] = uint8(len(p.symbols) - 1)
	}
	p.feed, p.other = int(p.columns['\n']), len(p.symbols)
	p.symbols = append(p.symbols, otherSymbol)
	for c := utf8.RuneSelf; c < len(p.columns); c++ {
		p.columns[c] = uint8(len(p.symbols))
	}
}

func (p *dfaProgram) setOthers() {
	for pc := range p.inst {
		eachRange(&p.inst[pc], func(_, high rune) {
			if high >= utf8.RuneSelf {
				p.others.add(uint32(pc))
			}
		})
	}
}

// classStarts has the characters at which a class starts.
type classStarts [utf8.RuneSelf + 1]bool

// add tells the characters from low to high from all others.
func (s *classStarts) add(low, high rune) {
	if low < utf8.RuneSelf {
		s[low] = true
		s[min(high+1, utf8.RuneSelf)] = true
	}
}

// addInstruction adds what an instruction tells apart, and says whether that is words.
func (s *classStarts) addInstruction(inst *syntax.Inst) (isWord bool) {
	switch inst.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		eachRange(inst, s.add)
	case syntax.InstEmptyWidth:
		isWord = syntax.EmptyOp(inst.Arg)&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0
		for c := range rune(utf8.RuneSelf) {
			if isWord && syntax.IsWordChar(c) {
				s.add(c, c)
			}
		}
	}
	return isWord
}

// eachRange calls a function with the first and the last character of each range that an instruction accepts. Only a
// single character is folded here: the ranges of a class already contain what they fold to.
func eachRange(inst *syntax.Inst, do func(low, high rune)) {
	if len(inst.Rune) != 1 {
		for i := 0; i+1 < len(inst.Rune); i += 2 {
			do(inst.Rune[i], inst.Rune[i+1])
		}
		return
	}
	first := inst.Rune[0]
	do(first, first)
	if syntax.Flags(inst.Arg)&syntax.FoldCase == 0 {
		return
	}
	for c := unicode.SimpleFold(first); c != first; c = unicode.SimpleFold(c) {
		do(c, c)
	}
}

// accepts says whether an instruction that reads a character may accept one of the symbol's.
func (p *dfaProgram) accepts(pc uint32, symbol rune) bool {
	if symbol == otherSymbol {
		return p.others.has(pc)
	}
	return p.inst[pc].MatchRune(symbol)
}

// symbolAt returns the symbol at the start of data, as an index of symbols, and its length.
func (p *dfaProgram) symbolAt(data []byte) (column, size int) {
	if data[0] < utf8.RuneSelf {
		return int(p.columns[data[0]]), 1
	}
	_, size = utf8.DecodeRune(data)
	return p.other, size
}
