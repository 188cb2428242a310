package guards

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// findings is what a scan of a source found; empty strings mean nothing.
type findings struct {
	denied     string // a denied module
	network    string // a network module, or fetch
	unreadable string // why the source can't be scanned
	steps      int    // how many steps the scan took
}

// moduleScanner looks for uses of modules. It works on the text and not on a syntax tree: one scanner serves every
// language, and a source can't confuse it about where strings and comments end. What looks like a use inside of a
// string or comment therefore counts too.
type moduleScanner struct {
	words      map[string]*scanWord
	denied     map[string]bool
	network    map[string]bool
	quotedOnly []string // denied names that aren't identifiers: only string literals can name them
	fetch      bool
	longest    int
	first      [256]bool
}

// scanWord is an identifier that the scanner looks for.
type scanWord struct {
	keyword keyword
	targets []target // modules whose first part is this word
}

// target is a module to look for, in parts: os.path and fs/promises have two.
type target struct {
	name  string
	parts []string
}

// keyword is what an identifier means for the text after it.
type keyword int

const (
	keywordNone   keyword = iota
	keywordImport         // import a, b.c as d
	keywordFrom           // from a.b import c, import x from 'm'
	keywordCall           // name('m') imports m
	keywordFetch          // fetch(...) uses the network
	keywordNode           // 'node:m' names m, wherever the literal stands
)

func scanKeywords() map[string]keyword {
	return map[string]keyword{
		"import": keywordImport, "from": keywordFrom,
		"require": keywordCall, "__import__": keywordCall, "import_module": keywordCall, "getBuiltinModule": keywordCall,
		"node": keywordNode,
	}
}

func newModuleScanner(denied []string, network bool) *moduleScanner {
	s := &moduleScanner{words: map[string]*scanWord{}, denied: map[string]bool{}, network: map[string]bool{}, fetch: network}
	for name, kind := range scanKeywords() {
		s.word(name).keyword = kind
	}
	for _, name := range denied {
		name = strings.TrimPrefix(name, "node:")
		s.denied[name] = true
		s.add(name)
	}
	if !network {
		return s
	}
	s.word("fetch").keyword = keywordFetch
	for _, name := range networkModules() {
		s.network[name] = true
		if !s.denied[name] {
			s.add(name)
		}
	}
	return s
}

func (s *moduleScanner) word(name string) *scanWord {
	if s.words[name] == nil {
		s.words[name] = &scanWord{}
	}
	s.longest = max(s.longest, len(name))
	s.first[name[0]] = true
	return s.words[name]
}

func (s *moduleScanner) add(name string) {
	parts := splitModule(name)
	for _, part := range parts {
		if !isIdentifier(part) {
			s.quotedOnly = append(s.quotedOnly, name)
			return
		}
	}
	word := s.word(parts[0])
	word.targets = append(word.targets, target{name: name, parts: parts})
}

// splitModule splits at dots and slashes.
func splitModule(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '/' })
}

func isIdentifier(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isWordByte(s[i]) || (i == 0 && isDigit(s[i])) {
			return false
		}
	}
	return s != ""
}

// isWord says of each byte whether it is part of an identifier. It never changes.
var isWord = func() (is [256]bool) {
	for i := range is {
		c := byte(i)
		if c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || isDigit(c) || c >= utf8.RuneSelf {
			is[i] = true
		}
	}
	return is
}()

// isWordByte counts every byte of a character beyond ASCII as part of an identifier.
func isWordByte(c byte) bool { return isWord[c] }

func isQuote(c byte) bool { return c == '\'' || c == '"' || c == '`' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// matchPath returns the targets' first match for the parts of a dotted path.
func matchPath(targets []target, path []string) string {
	for _, t := range targets {
		if t.begins(path) {
			return t.name
		}
	}
	return ""
}

// begins reports whether a dotted path is the module or something in it.
func (t *target) begins(path []string) bool {
	return len(path) >= len(t.parts) && slices.Equal(t.parts, path[:len(t.parts)])
}

// matchText returns the module that a string literal's content names.
func (s *moduleScanner) matchText(text string) string {
	text = strings.TrimPrefix(strings.TrimSpace(text), "node:")
	for _, name := range s.quotedOnly {
		if text == name || strings.HasPrefix(text, name+"/") {
			return name
		}
	}
	path := splitModule(text)
	if len(path) == 0 || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "/") {
		return ""
	}
	word := s.words[path[0]]
	if word == nil {
		return ""
	}
	return matchPath(word.targets, path)
}

// scan searches the source as it is written. Nothing is decoded, joined or evaluated.
func (s *moduleScanner) scan(source, language string) findings {
	var found findings
	if len(s.denied) == 0 && !s.fetch {
		return found
	}
	run := newScanRun(s, source, language, &found)
	run.scan()
	found.steps = len(source) + run.ahead
	return found
}

// plainSpace turns what JavaScript takes for white space, beyond ASCII, into what every language does.
func plainSpace(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
		return r
	case r == '\ufeff' || unicode.Is(unicode.Zs, r):
		return ' '
	case r == '\u2028' || r == '\u2029':
		return '\n'
	default:
		return r
	}
}

const (
	// aheadPerByte bounds the steps of looking ahead for each byte. Ordinary sources take less than one.
	aheadPerByte = 8
	// leastAhead is the bound for short sources.
	leastAhead = 4096
)
