// Package glob translates globs of paths into regular expressions, which match in linear time: matchers that backtrack take
// exponential time for some globs.
package glob

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/pattern"
)

const (
	// maxAlternatives bounds the globs without braces that a glob with braces stands for.
	maxAlternatives = 256
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
	switch {
	case !utf8.ValidString(glob):
		return "", errors.New("it isn't UTF-8")
	case strings.ContainsRune(glob, 0):
		return "", errors.New("it contains a NUL byte, which no file name can")
	}
	globs, err := alternatives(glob)
	if err != nil {
		return "", err
	}
	for i := range globs {
		if globs[i], err = translate(globs[i]); err != nil {
			return "", err
		}
	}
	expr := "(?:" + strings.Join(globs, "|") + ")"
	if len(expr) > maxExpressionBytes {
		return "", errTooLarge
	}
	if _, err := syntax.Parse(expr, syntax.Perl); err != nil {
		return "", fmt.Errorf("one of its classes can't be read: %w", err)
	}
	return expr, nil
}

var (
	errTooLarge = errors.New("it is too large: use fewer wildcards, classes and braces")
	errNames    = errors.New("it contains an empty name, \".\" or \"..\", which match nothing: use one slash between names, none " +
		"at the start or the end of an alternative in braces, and a path without \"..\"")
)

// translate translates a glob without braces.
func translate(glob string) (string, error) {
	for name := range strings.SplitSeq(glob, "/") {
		switch strings.ReplaceAll(name, `\`, "") {
		case "", ".", "..":
			return "", errNames
		}
	}
	// Of "a/**" the slash goes with the names, of which there may be none.
	rest, isBelow := strings.CutSuffix(glob, "/**")
	expr, err := pattern.Regexp(rest, pattern.Filenames|pattern.GlobLeadingDot)
	if err != nil {
		return "", err
	}
	// A class that is negated doesn't match a slash either.
	expr = strings.ReplaceAll(expr, "[^", "[^/")
	if isBelow {
		expr += "(?:/.*)?"
	}
	return expr, nil
}

// alternatives are the globs without braces that a glob stands for: "a{b,c}" is ab and ac.
func alternatives(glob string) ([]string, error) {
	depth := 0
	// marks are where the first brace is, the commas in it, and its end.
	var marks []int
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '\\':
			i++
		case c == '[':
			size := classSize(glob[i:])
			if size == 0 {
				return nil, errors.New("a \"[\" has no \"]\"")
			}
			i += size - 1
		case c == '{':
			if depth++; depth == 1 {
				marks = append(marks, i)
			}
		case c == '}' && depth == 0:
			return nil, errors.New("a \"}\" has no \"{\"")
		case c == '}' && depth == 1:
			return expand(glob, append(marks, i))
		case c == '}':
			depth--
		case c == ',' && depth == 1:
			marks = append(marks, i)
		}
	}
	if depth > 0 {
		return nil, errors.New("a \"{\" has no \"}\"")
	}
	return []string{glob}, nil
}

// expand replaces the first brace of a glob by each of its alternatives.
func expand(glob string, marks []int) (all []string, err error) {
	before, after := glob[:marks[0]], glob[marks[len(marks)-1]+1:]
	for i, end := range marks[1:] {
		globs, err := alternatives(before + glob[marks[i]+1:end] + after)
		if err != nil {
			return nil, err
		}
		if all = append(all, globs...); len(all) > maxAlternatives {
			return nil, errTooLarge
		}
	}
	return all, nil
}

// classSize is how many bytes a class at the start of a text takes; 0 where nothing ends it.
func classSize(text string) int {
	i := 1
	if strings.HasPrefix(text[i:], "!") || strings.HasPrefix(text[i:], "^") {
		i++
	}
	// What stands first doesn't end it.
	for first := i; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == ']' && i > first:
			return i + 1
		}
	}
	return 0
}
