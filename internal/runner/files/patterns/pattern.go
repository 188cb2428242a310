// Package patterns compiles what a Glob and a Grep are asked for, within bounds of memory and time. It is pure.
package patterns

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// MaxBytes is the longest pattern or glob.
const MaxBytes = 8 << 10

// Bounds of one expression: memory grows with both, and time with instructions times bytes.
const (
	maxInstructions = 10_000
	maxClassRunes   = 50_000
)

// Pattern is what a Grep looks for in lines.
type Pattern struct {
	Expr *regexp.Regexp
	// Size is about how many instructions Expr has.
	Size int
	// Literals are texts of which a line that matches contains one; none if every line may match.
	Literals []Literal
}

// Compile compiles the pattern of a Grep.
func Compile(text string, isLiteral bool) (*Pattern, error) {
	switch {
	case text == "":
		return nil, sys.NewError(reason.InvalidPattern, "The pattern is empty: \".\" matches every line that isn't empty.")
	case len(text) > MaxBytes:
		return nil, sys.NewError(reason.InvalidPattern, "The pattern is %d bytes long: it has at most %d.", len(text), MaxBytes)
	case isLiteral && strings.ContainsAny(text, "\n\x00"):
		return nil, sys.NewError(reason.InvalidPattern, "The pattern contains a line feed or a NUL byte: a line of text contains neither.")
	case isLiteral:
		return &Pattern{Expr: regexp.MustCompile(regexp.QuoteMeta(text)), Literals: []Literal{{Text: []byte(text)}}}, nil
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, sys.NewError(reason.InvalidPattern, "The pattern isn't an RE2 expression: %v: correct it, or set literal to look for the "+
			"text itself.", err)
	}
	tree = withoutGroups(tree)
	if needsLineFeed(tree) {
		return nil, sys.NewError(reason.InvalidPattern, "The pattern matches only texts with a line feed, and lines are searched one by one: "+
			"search for a part of one line; contextLines shows the lines around it.")
	}
	size := instructions(tree)
	if size > maxInstructions || classRunes(tree) > maxClassRunes {
		return nil, sys.NewError(reason.InvalidPattern, "The pattern is too large: it would compile to about %d instructions, and the limit is "+
			"%d, or it has too many large classes, such as \\pL: repeat less in it, or search for a part of it.", size, maxInstructions)
	}
	expr, err := regexp.Compile(tree.String())
	if err != nil {
		return nil, sys.NewError(reason.InvalidPattern, "The pattern can't be used: %v: make it simpler.", err)
	}
	return &Pattern{Expr: expr, Size: size, Literals: requiredLiterals(tree.Simplify())}, nil
}

// needsLineFeed says that each match of an expression without groups contains a line feed.
func needsLineFeed(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return slices.Contains(re.Rune, '\n')
	case syntax.OpPlus:
		return needsLineFeed(re.Sub[0])
	case syntax.OpRepeat:
		return re.Min > 0 && needsLineFeed(re.Sub[0])
	case syntax.OpConcat:
		return slices.ContainsFunc(re.Sub, needsLineFeed)
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !needsLineFeed(sub) })
	default:
		return false
	}
}

// instructions returns about how many instructions an expression without groups compiles to, and never much less.
func instructions(re *syntax.Regexp) int {
	size := 0
	for _, sub := range re.Sub {
		size += instructions(sub)
	}
	switch re.Op {
	case syntax.OpConcat:
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpAlternate:
		size += len(re.Sub)
	case syntax.OpRepeat:
		// Each repetition is a copy, and each that may be left out has a branch around it.
		copies := max(re.Min, re.Max, 1)
		size *= copies
		if re.Min != re.Max {
			size += copies
		}
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		size += 2
	default:
		size++
	}
	return size
}

// classRunes returns how many numbers the classes of an expression hold. Copies of a class share them.
func classRunes(re *syntax.Regexp) int {
	size := 0
	if re.Op == syntax.OpCharClass {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size += classRunes(sub)
	}
	return size
}

// withoutGroups makes every group one that captures nothing: the state of a match holds the captures of all groups.
func withoutGroups(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	for i, sub := range re.Sub {
		re.Sub[i] = withoutGroups(sub)
	}
	return re
}
