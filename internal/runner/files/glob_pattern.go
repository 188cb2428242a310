package files

import (
	"regexp"
	"strings"

	"toolcall.dev/operator/internal/glob"
)

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
func compileGlob(text string) (*globPattern, error) {
	switch {
	case text == "":
		return nil, newError(InvalidPattern, "The glob is empty: \"**\" matches everything.")
	case len(text) > MaxPatternBytes:
		return nil, newError(InvalidPattern, "The glob is %d bytes long: it has at most %d.", len(text), MaxPatternBytes)
	case strings.HasPrefix(text, "/"):
		return nil, newError(InvalidPattern, "The glob %s starts with a slash: globs are relative to the path.", quote(text))
	}
	expr, err := glob.Expression(text)
	if err != nil {
		return nil, newError(InvalidPattern, "%s isn't a glob: %v.", quote(text), err)
	}
	names := strings.Split(text, "/")
	p := &globPattern{isName: len(names) == 1}
	if p.expr, err = regexp.Compile("(?s)^(?:" + expr + ")$"); err != nil {
		return nil, newError(InvalidPattern, "The glob %s is too large: make it simpler.", quote(text))
	}
	for len(p.prefix) < len(names)-1 && !strings.ContainsAny(names[len(p.prefix)], `*?[]{}\`) {
		p.prefix = append(p.prefix, names[len(p.prefix)])
	}
	// Braces and classes can contain slashes.
	if !strings.Contains(text, "**") && !strings.ContainsAny(text, `[{\`) {
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
