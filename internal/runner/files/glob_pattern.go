package files

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxBraces is how deep braces can be nested.
const maxBraces = 8

// globPattern is a glob of paths below a directory. It is matched as a regular expression, in linear time: matchers that
// backtrack take exponential time for some globs.
type globPattern struct {
	expr *regexp.Regexp
	// prefix are the leading names without a wildcard; nothing else has to be walked.
	prefix []string
	// depth is how many names a match has; 0 is any number.
	depth int
	// isName says that the glob has no slash.
	isName bool
}

// compileGlob compiles a glob that a request gives.
func compileGlob(glob string) (*globPattern, error) {
	switch {
	case glob == "":
		return nil, newError(InvalidPattern, "The glob is empty: \"**\" matches everything.")
	case len(glob) > MaxPatternBytes:
		return nil, newError(InvalidPattern, "The glob is %d bytes long: it has at most %d.", len(glob), MaxPatternBytes)
	case strings.HasPrefix(glob, "/"):
		return nil, newError(InvalidPattern, "The glob %s starts with a slash: globs are relative to the path.", quote(glob))
	}
	names := strings.Split(glob, "/")
	for _, name := range names {
		if name == "" || name == "." || name == ".." {
			return nil, newError(InvalidPattern, "The glob %s contains an empty name, \".\" or \"..\", which match nothing: "+
				"globs are relative to the path.", quote(glob))
		}
	}
	expr, err := globExpression(glob)
	if err != nil {
		return nil, newError(InvalidPattern, "%s isn't a glob: %v.", quote(glob), err)
	}
	p := &globPattern{isName: len(names) == 1}
	if p.expr, err = regexp.Compile("(?s)^(?:" + expr + ")$"); err != nil {
		return nil, newError(InvalidPattern, "The glob %s is too large: make it simpler.", quote(glob))
	}
	for len(p.prefix) < len(names)-1 && !strings.ContainsAny(names[len(p.prefix)], `*?[]{}\`) {
		p.prefix = append(p.prefix, names[len(p.prefix)])
	}
	// Braces and classes can contain slashes.
	if !strings.Contains(glob, "**") && !strings.ContainsAny(glob, `[{\`) {
		p.depth = len(names)
	}
	return p, nil
}

func (p *globPattern) isMatch(path string) bool { return p.expr.MatchString(path) }

// mayMatchBelow says whether a directory that is depth names below the path can contain a match.
func (p *globPattern) mayMatchBelow(path string, depth int) bool {
	if p.depth > 0 && depth >= p.depth {
		return false
	}
	names := strings.Split(path, "/")
	for i := range min(len(names), len(p.prefix)) {
		if names[i] != p.prefix[i] {
			return false
		}
	}
	return true
}

// globExpression translates a glob: "*" and "?" don't match a slash, "**" as a whole name matches any number of names,
// "[a-z]", "[^a]" and "[!a]" match one character, "{a,b}" either, and "\" quotes.
func globExpression(glob string) (string, error) {
	if !utf8.ValidString(glob) {
		return "", errors.New("it isn't UTF-8")
	}
	g := globParser{rest: glob, nameStart: true}
	for g.rest != "" {
		if err := g.next(); err != nil {
			return "", err
		}
	}
	if len(g.braces) > 0 {
		return "", errors.New("a \"{\" has no \"}\"")
	}
	return g.out.String(), nil
}

type globParser struct {
	out  strings.Builder
	rest string
	// nameStart says that a name starts here; braces has what it was at each open brace.
	nameStart bool
	braces    []bool
}

func (g *globParser) next() error {
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
		g.out.WriteString(regexp.QuoteMeta(string(c)))
		g.nameStart = c == '/'
	case c == '/' && (g.rest == "/**" || strings.HasPrefix(g.rest, "/**/")):
		g.slashDoubleStar()
		return nil
	default:
		if err := g.plain(c, starts); err != nil {
			return err
		}
	}
	g.rest = g.rest[size:]
	return nil
}

// plain translates one character.
func (g *globParser) plain(c rune, starts bool) error {
	switch {
	case c == '*':
		g.out.WriteString("[^/]*")
	case c == '?':
		g.out.WriteString("[^/]")
	case c == '{':
		if len(g.braces) == maxBraces {
			return fmt.Errorf("its braces are nested more than %d deep", maxBraces)
		}
		g.braces, g.nameStart = append(g.braces, starts), starts
		g.out.WriteString("(?:")
	case c == ',' && len(g.braces) > 0:
		g.nameStart = g.braces[len(g.braces)-1]
		g.out.WriteString("|")
	case c == '}' && len(g.braces) > 0:
		g.braces = g.braces[:len(g.braces)-1]
		g.out.WriteString(")")
	case c == '}':
		return errors.New("a \"}\" has no \"{\"")
	default:
		g.out.WriteString(regexp.QuoteMeta(string(c)))
		g.nameStart = c == '/'
	}
	return nil
}

// slashDoubleStar translates "/**" before a slash or at the end: the slash goes with the names, of which there may be none.
func (g *globParser) slashDoubleStar() {
	g.rest = g.rest[len("/**"):]
	g.out.WriteString("(?:/.*)?")
	if strings.HasPrefix(g.rest, "/**") {
		return
	}
	g.nameStart = false
}

// doubleStar translates a "**" at the start of a name, if it is the whole name.
func (g *globParser) doubleStar() bool {
	rest := g.rest[2:]
	switch {
	case strings.HasPrefix(rest, "/"):
		g.out.WriteString("(?:.*/)?")
		g.rest, g.nameStart = rest[1:], true
	case rest == "", len(g.braces) > 0 && (rest[0] == ',' || rest[0] == '}'):
		g.out.WriteString(".*")
		g.rest = rest
	default:
		return false
	}
	return true
}

// class translates "[...]". A class never matches a slash.
func (g *globParser) class() error {
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
	g.rest = rest[1:]
	g.writeClass(negated, ranges)
	return nil
}

func (g *globParser) writeClass(negated bool, ranges [][2]rune) {
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

func (g *globParser) writeRange(low, high rune) {
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
