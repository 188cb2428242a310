package patterns

import (
	"regexp"
	"strings"

	"toolcall.dev/operator/internal/glob"
	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// Glob is a glob of paths below a directory. It is matched as a regular expression, in linear time: matchers that
// backtrack take exponential time for some globs. Nil matches everything.
type Glob struct {
	expr *regexp.Regexp
	// prefix are the leading names without a wildcard; nothing else has to be walked.
	prefix []string
	// depth is how many names a match has; 0 is any number.
	depth int
}

// CompileGlob compiles a glob that a request gives. Anywhere has one without a slash count in every directory.
func CompileGlob(text string, anywhere bool) (*Glob, error) {
	switch {
	case text == "":
		return nil, sys.NewError(reason.InvalidPattern, "The glob is empty: \"**\" matches everything.")
	case len(text) > MaxBytes:
		return nil, sys.NewError(reason.InvalidPattern, "The glob is %d bytes long: it has at most %d.", len(text), MaxBytes)
	case strings.HasPrefix(text, "/"):
		return nil, sys.NewError(reason.InvalidPattern, "The glob %s starts with a slash: globs are relative to path, so name the directory there.",
			sys.Quote(text))
	}
	asked, anywhere := text, anywhere && !strings.Contains(text, "/")
	text = strings.TrimPrefix(text, "./")
	expr, err := glob.Expression(text)
	if err != nil {
		return nil, sys.NewError(reason.InvalidPattern, "%s isn't a glob: %v.", sys.Quote(asked), err)
	}
	if anywhere {
		text, expr = "**/"+text, "(?:.*/)?(?:"+expr+")"
	}
	p := &Glob{prefix: glob.Prefix(text)}
	if p.expr, err = regexp.Compile("(?s)^(?:" + expr + ")$"); err != nil {
		return nil, sys.NewError(reason.InvalidPattern, "The glob %s is too large: make it simpler.", sys.Quote(asked))
	}
	// Braces and classes can contain slashes.
	if !strings.Contains(text, "**") && !strings.ContainsAny(text, `[{\`) {
		p.depth = strings.Count(text, "/") + 1
	}
	return p, nil
}

// IsMatch says whether a path matches.
func (p *Glob) IsMatch(path string) bool { return p == nil || p.expr.MatchString(path) }

// MayMatchBelow says whether a directory that is depth names below the path can contain a match.
func (p *Glob) MayMatchBelow(path string, depth int) bool {
	if p == nil {
		return true
	}
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
