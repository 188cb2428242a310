// Package glob translates globs of paths into regular expressions, which match in linear time: matchers that backtrack take
// exponential time for some globs.
package glob

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxBraces is how deep braces can be nested.
	maxBraces = 8
	// maxExpressionBytes bounds the expression of one glob, and maxDeniedBytes that of all denied ones. An expression has no
	// repetitions, so it compiles to fewer instructions than it has bytes.
	maxExpressionBytes = 16 << 10
	maxDeniedBytes     = 64 << 10
)

// Denied compiles globs of what nobody may reach into one expression of absolute paths, which matches what is below a match
// too. A glob without a leading slash counts in every directory. Upper and lower case don't differ, as in some file systems
// they don't. It is nil without globs.
func Denied(globs []string) (*regexp.Regexp, error) {
	var all []string
	for _, one := range globs {
		rest, absolute := strings.CutPrefix(one, "/")
		rest = strings.TrimSuffix(rest, "/")
		if rest == "" {
			return nil, fmt.Errorf("%.512q: it names nothing below the root", one)
		}
		expr, err := Expression(rest)
		if err != nil {
			return nil, fmt.Errorf("%.512q: %w", one, err)
		}
		if !absolute {
			expr = "(?:.*/)?" + expr
		}
		all = append(all, expr)
	}
	if len(all) == 0 {
		return nil, nil
	}
	expr := strings.Join(all, "|")
	tooLarge := fmt.Errorf("%.512q: all globs together are too many or too long", globs[0])
	if len(expr) > maxDeniedBytes {
		return nil, tooLarge
	}
	denied, err := regexp.Compile("(?is)^/(?:" + expr + ")(?:/.*)?$")
	if err != nil {
		return nil, tooLarge
	}
	return denied, nil
}

// Expression translates a glob: "*" and "?" don't match a slash, "**" as a whole name matches any number of names,
// "[a-z]", "[^a]" and "[!a]" match one character, "{a,b}" either, and "\" quotes.
func Expression(glob string) (string, error) {
	if !utf8.ValidString(glob) {
		return "", errors.New("it isn't UTF-8")
	}
	g := parser{rest: glob, nameStart: true, names: emptyName}
	for g.rest != "" {
		if err := g.next(); err != nil {
			return "", err
		}
	}
	if g.names.matchNothing() {
		return "", errNames
	}
	if len(g.braces) > 0 {
		return "", errors.New("a \"{\" has no \"}\"")
	}
	if g.out.Len() > maxExpressionBytes {
		return "", errors.New("it is too large: use fewer wildcards and classes")
	}
	return g.out.String(), nil
}

type parser struct {
	out  strings.Builder
	rest string
	// nameStart says that a name starts here.
	nameStart bool
	// names are what the current name can be so far.
	names  names
	braces []brace
}

// brace is an open brace.
type brace struct {
	nameStart bool
	// before is what the name could be before the brace, after what it can be at the end of one of the alternatives so far.
	before, after names
}

// names is a set of what a name can be: braces give it several values at once.
type names uint8

const (
	emptyName names = 1 << iota
	dot
	dotDot
	otherName
)

// matchNothing says that a name can be one that no path without links contains.
func (n names) matchNothing() bool { return n&(emptyName|dot|dotDot) != 0 }

// with returns the set after one more character that isn't a slash.
func (n names) with(c rune) names {
	if c != '.' {
		return otherName
	}
	// A dot makes each the next one.
	return n<<1&(dot|dotDot|otherName) | n&otherName
}

var errNames = errors.New("it contains an empty name, \".\" or \"..\", which match nothing: use one slash between names, none " +
	"at the start or the end of an alternative in braces, and a path without \"..\"")

// add takes a character that stands for itself into the name.
func (g *parser) add(c rune) error {
	g.out.WriteString(regexp.QuoteMeta(string(c)))
	if c != '/' {
		g.names = g.names.with(c)
		return nil
	}
	if g.names.matchNothing() {
		return errNames
	}
	g.nameStart, g.names = true, emptyName
	return nil
}

func (g *parser) next() error {
	c, size := utf8.DecodeRuneInString(g.rest)
	starts := g.nameStart
	g.nameStart = false
	switch {
	case starts && strings.HasPrefix(g.rest, "**") && g.doubleStar():
		return nil
	case c == '[':
		return g.class()
	case c == '\\':
		if g.rest = g.rest[1:]; g.rest == "" {
			return errors.New("it ends with \"\\\"")
		}
		c, size = utf8.DecodeRuneInString(g.rest)
		if err := g.add(c); err != nil {
			return err
		}
	case strings.HasPrefix(g.rest, "/**") && g.isWhole(g.rest[len("/**"):]):
		return g.slashDoubleStar()
	default:
		if err := g.plain(c, starts); err != nil {
			return err
		}
	}
	g.rest = g.rest[size:]
	return nil
}

// plain translates one character.
func (g *parser) plain(c rune, starts bool) error {
	switch {
	case c == '*':
		g.out.WriteString("[^/]*")
		g.names = otherName
	case c == '?':
		g.out.WriteString("[^/]")
		g.names = otherName
	case c == '{':
		if len(g.braces) == maxBraces {
			return fmt.Errorf("its braces are nested more than %d deep", maxBraces)
		}
		g.braces, g.nameStart = append(g.braces, brace{nameStart: starts, before: g.names}), starts
		g.out.WriteString("(?:")
	case c == ',' && len(g.braces) > 0:
		b := &g.braces[len(g.braces)-1]
		b.after |= g.names
		g.nameStart, g.names = b.nameStart, b.before
		g.out.WriteString("|")
	case c == '}' && len(g.braces) > 0:
		g.names |= g.braces[len(g.braces)-1].after
		g.braces = g.braces[:len(g.braces)-1]
		g.out.WriteString(")")
	case c == '}':
		return errors.New("a \"}\" has no \"{\"")
	default:
		return g.add(c)
	}
	return nil
}

// isWhole says that a "**" before rest ends its name.
func (g *parser) isWhole(rest string) bool {
	return rest == "" || rest[0] == '/' || len(g.braces) > 0 && (rest[0] == ',' || rest[0] == '}')
}

// slashDoubleStar translates "/**" as a whole name: the slash goes with the names, of which there may be none.
func (g *parser) slashDoubleStar() error {
	if g.names.matchNothing() {
		return errNames
	}
	g.rest, g.names = g.rest[len("/**"):], otherName
	g.out.WriteString("(?:/.*)?")
	return nil
}

// doubleStar translates a "**" at the start of a name, if it is the whole name.
func (g *parser) doubleStar() bool {
	rest := g.rest[2:]
	switch {
	case strings.HasPrefix(rest, "/"):
		g.out.WriteString("(?:.*/)?")
		g.rest, g.nameStart, g.names = rest[1:], true, emptyName
	case g.isWhole(rest):
		g.out.WriteString(".*")
		g.rest, g.names = rest, otherName
	default:
		return false
	}
	return true
}

// class translates "[...]". A class never matches a slash.
func (g *parser) class() error {
	rest := g.rest[1:]
	negated := strings.HasPrefix(rest, "^") || strings.HasPrefix(rest, "!")
	if negated {
		rest = rest[1:]
	}
	var ranges [][2]rune
	for first := true; first || !strings.HasPrefix(rest, "]"); first = false {
		low, after, err := classRune(rest)
		if err != nil {
			return err
		}
		high := low
		if strings.HasPrefix(after, "-") && !strings.HasPrefix(after, "-]") {
			if high, after, err = classRune(after[1:]); err != nil {
				return err
			}
		}
		if low > high {
			return fmt.Errorf("the range %c-%c is upside down", low, high)
		}
		ranges, rest = append(ranges, [2]rune{low, high}), after
	}
	g.rest, g.names = rest[1:], otherName
	g.writeClass(negated, ranges)
	return nil
}

func (g *parser) writeClass(negated bool, ranges [][2]rune) {
	if negated {
		g.out.WriteString("[^/")
	} else {
		// U+10FFFF alone keeps the class from being empty.
		g.out.WriteString(`[\x{10FFFF}`)
	}
	for _, r := range ranges {
		if !negated && r[0] <= '/' && '/' <= r[1] {
			g.writeRange(r[0], '/'-1)
			g.writeRange('/'+1, r[1])
			continue
		}
		g.writeRange(r[0], r[1])
	}
	g.out.WriteString("]")
}

func (g *parser) writeRange(low, high rune) {
	if low <= high {
		fmt.Fprintf(&g.out, `\x{%X}-\x{%X}`, low, high)
	}
}

// classRune reads one character of a class.
func classRune(s string) (rune, string, error) {
	s = strings.TrimPrefix(s, `\`)
	if s == "" {
		return 0, "", errors.New("a \"[\" has no \"]\"")
	}
	c, size := utf8.DecodeRuneInString(s)
	return c, s[size:], nil
}
