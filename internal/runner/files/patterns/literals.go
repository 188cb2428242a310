package patterns

import (
	"bytes"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// maxLiterals is how many texts are looked for at once. Each costs a search of its own.
const maxLiterals = 8

// Literal is a text that a line must contain to match.
type Literal struct {
	Text []byte
	// Fold says that upper and lower case don't differ. The text is in lower case then, and ASCII.
	Fold bool
}

// requiredLiterals returns texts of which a match contains at least one; none if that isn't known. Looking for them is
// much faster than the expression.
func requiredLiterals(re *syntax.Regexp) []Literal {
	switch re.Op {
	case syntax.OpLiteral:
		return literalOf(re)
	case syntax.OpCapture, syntax.OpPlus:
		return requiredLiterals(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return requiredLiterals(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []Literal
		for _, sub := range re.Sub {
			if found := requiredLiterals(sub); isBetter(found, best) {
				best = found
			}
		}
		return best
	case syntax.OpAlternate:
		var all []Literal
		for _, sub := range re.Sub {
			found := requiredLiterals(sub)
			if len(found) == 0 || len(all)+len(found) > maxLiterals {
				return nil
			}
			all = append(all, found...)
		}
		return all
	}
	return nil
}

// isBetter prefers the longer text, then the fewer.
func isBetter(a, b []Literal) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) > 0
	}
	shortA, shortB := shortest(a), shortest(b)
	return shortA > shortB || shortA == shortB && len(a) < len(b)
}

func shortest(all []Literal) int {
	return len(slices.MinFunc(all, func(a, b Literal) int { return len(a.Text) - len(b.Text) }).Text)
}

// literalOf returns the text of a literal expression. The expression's U+FFFD matches any byte that isn't UTF-8. Where
// case doesn't matter it returns the longest part of the text that has no case outside of ASCII.
func literalOf(re *syntax.Regexp) []Literal {
	var text, best []byte
	fold := re.Flags&syntax.FoldCase != 0
	for _, r := range re.Rune {
		if r == utf8.RuneError || fold && !foldsInASCII(r) {
			text = nil
			continue
		}
		if fold {
			r = unicode.ToLower(r)
		}
		text = utf8.AppendRune(text, r)
		if len(text) > len(best) {
			best = bytes.Clone(text)
		}
	}
	if len(best) == 0 {
		return nil
	}
	return []Literal{{best, fold}}
}

// foldsInASCII says that a letter, and what it is folded to, are ASCII. "k" and "s" have relatives elsewhere.
func foldsInASCII(r rune) bool {
	if r >= utf8.RuneSelf {
		return false
	}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
