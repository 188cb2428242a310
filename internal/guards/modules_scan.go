package guards

import (
	"iter"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/spec"
)

// scanRun is the search of one text.
type scanRun struct {
	*moduleScanner
	text   string
	found  *findings
	dollar bool // "$" is part of identifiers
	// ahead counts the steps of looking at what follows a word, and maxAhead bounds them.
	ahead, maxAhead int
	// lastLine and unclosed are positions after which the text has no line break, and no end of a comment.
	lastLine, unclosed int
	// imported are the names of modules in import statements; nil where nobody asks. fromImport is where the import of a "from" stands.
	imported   map[string]bool
	fromImport int
}

func newScanRun(s *moduleScanner, source, language string, found *findings) *scanRun {
	language = spec.Language(language)
	isJavaScript := language == "javascript" || language == "typescript"
	source = strings.TrimPrefix(source, "\ufeff") // a byte order mark
	if isJavaScript {
		source = strings.Map(plainSpace, source)
	}
	return &scanRun{
		moduleScanner: s, text: source, found: found, dollar: isJavaScript,
		maxAhead: aheadPerByte*len(source) + leastAhead, lastLine: len(source), unclosed: len(source), fromImport: -1,
	}
}

func (r *scanRun) scan() {
	text := r.text
	for i := 0; i < len(text) && r.found.denied == ""; {
		c := text[i]
		if isWordByte(c) || (r.dollar && c == '$') {
			i = r.scanWord(i)
			continue
		}
		i++
	}
	if r.exhausted() {
		r.found.unreadable = "it repeats unfinished imports and calls, so that searching it takes too many steps"
	}
}

// report records the use of a denied module or of a network module.
func (r *scanRun) report(name string) {
	switch {
	case name == "":
	case r.denied[name]:
		r.found.denied = name
	case r.found.network == "":
		r.found.network = name
	}
}

// search counts the steps of searching bytes for a character, which is faster than looking at each of them.
func (r *scanRun) search(bytes int) { r.look(bytes/8 + 1) }

// look counts steps.
func (r *scanRun) look(steps int) { r.ahead += steps }

func (r *scanRun) exhausted() bool { return r.ahead > r.maxAhead }

// wordAhead is wordEnd with its steps counted, for looking ahead.
func (r *scanRun) wordAhead(i int) int {
	end := r.wordEnd(i)
	r.look(end - i)
	return end
}

func (r *scanRun) wordEnd(i int) int {
	for i < len(r.text) && (isWordByte(r.text[i]) || (r.dollar && r.text[i] == '$')) {
		i++
	}
	return i
}

func (r *scanRun) scanWord(start int) int {
	end := r.wordEnd(start)
	if end-start > r.longest || !r.first[r.text[start]] {
		return end
	}
	word := r.words[r.text[start:end]]
	if word == nil {
		return end
	}
	if start != r.fromImport {
		r.followKeyword(word.keyword, end)
	}
	if len(word.targets) > 0 {
		r.findReference(word.targets, start)
	}
	return end
}

func (r *scanRun) followKeyword(kind keyword, end int) {
	switch kind {
	case keywordImport:
		r.importList(end)
	case keywordFrom:
		r.fromPath(end)
	case keywordCall:
		r.reportArgument(end)
	case keywordFetch:
		r.reportFetch(end)
	case keywordNode:
		r.reportScheme(end-len("node"), end)
	case keywordNone:
	}
}

// maxLiteral is longer than any module's name.
const maxLiteral = 300

// reportArgument records the module that the argument of an importing function names, with or without brackets before it. It returns
// whether there is a literal.
func (r *scanRun) reportArgument(i int) bool {
	start := r.skip(i, true)
	for i = start; i < len(r.text) && r.text[i] == '('; {
		i = r.skip(i+1, true)
	}
	if i > start {
		// A literal of Python can have letters before its quote, as in rb'os'.
		rest := r.text[i:min(len(r.text), i+2)]
		i += len(rest) - len(strings.TrimLeft(rest, "rbufRBUF"))
	}
	return r.reportLiteral(i)
}

// reportLiteral records the module that a string literal at i names. It returns whether there is a literal.
func (r *scanRun) reportLiteral(i int) bool {
	if i >= len(r.text) || !isQuote(r.text[i]) {
		return false
	}
	rest := r.text[i+1 : min(len(r.text), i+1+maxLiteral)]
	end := strings.IndexByte(rest, r.text[i])
	if end < 0 {
		r.search(len(rest))
		return true
	}
	r.search(end)
	r.report(r.matchText(rest[:end]))
	r.addImported(strings.TrimPrefix(strings.TrimSpace(rest[:end]), "node:"))
	return true
}

// reportScheme reports the module of a literal of JavaScript that begins with "node:", wherever it stands: the function that imports it may
// have another name. Whether it is imported isn't known.
func (r *scanRun) reportScheme(start, end int) {
	if !r.dollar || start == 0 || end >= len(r.text) || r.text[end] != ':' || !isQuote(r.text[start-1]) {
		return
	}
	rest := r.text[start:min(len(r.text), start+maxLiteral)]
	if size := strings.IndexByte(rest, r.text[start-1]); size >= 0 {
		r.search(size)
		r.report(r.matchText(rest[:size]))
	}
}

// reportFetch records a call of fetch.
func (r *scanRun) reportFetch(end int) {
	if i := r.skip(end, true); i < len(r.text) && r.text[i] == '(' {
		r.report("fetch")
	}
}

// findReference records a reference "m.", also with white space, line breaks and comments around the dot.
func (r *scanRun) findReference(targets []target, start int) {
	if path, _ := r.dotted(start); len(path) > 1 {
		r.report(matchPath(targets, path))
	}
}

// dotted reads a path like a.b.c and returns its parts and the position after it.
func (r *scanRun) dotted(i int) (path []string, end int) {
	start := i
	for {
		end = r.wordAhead(i)
		path = append(path, r.text[i:end])
		next := r.skip(end, true)
		if next+1 < len(r.text) && r.text[next] == '?' && r.text[next+1] == '.' {
			next++
		}
		if next >= len(r.text) || r.text[next] != '.' || len(path) > maxPath {
			return path, end
		}
		if i = next + 1; !r.isInSentence(start) {
			i = r.skip(i, true)
		}
		// A name of JavaScript can begin with an escape.
		if r.wordEnd(i) == i && !strings.HasPrefix(r.text[i:], `\u`) {
			return path, end
		}
	}
}

// beforePaths are words behind which code has a path. Behind "of", which JavaScript has too, sentences have far more.
const beforePaths = "and assert await case default del delete do elif else except extends from if import in instanceof is new not or raise " +
	"return throw typeof void while with yield"

// isInSentence reports whether another word than those is before i, on the same line: a dot there may be the end of a sentence.
func (r *scanRun) isInSentence(i int) bool {
	const enough = 16
	r.look(1)
	before := strings.TrimRight(r.text[max(0, i-enough):i], " \t")
	start := len(before)
	for start > 0 && isWordByte(before[start-1]) {
		start--
	}
	return start < len(before) && !hasField(beforePaths, before[start:])
}

// maxPath is more parts than any denied module has.
const maxPath = 16

// skip skips white space, line continuations and comments. It skips line breaks, and comments that end at one, only if
// lines is true.
func (r *scanRun) skip(i int, lines bool) int {
	for i < len(r.text) {
		r.look(1)
		if r.exhausted() {
			return len(r.text)
		}
		next := r.skipOne(i, lines)
		if next == i {
			return i
		}
		i = next
	}
	return i
}

func (r *scanRun) skipOne(i int, lines bool) int {
	text := r.text
	switch c := text[i]; {
	case c == ' ' || c == '\t' || c == '\f' || c == '\v', lines && (c == '\n' || c == '\r'):
		return i + 1
	case strings.HasPrefix(text[i:], "\\\r\n"):
		return i + 3
	case strings.HasPrefix(text[i:], "\\\n"), strings.HasPrefix(text[i:], "\\\r"):
		return i + 2
	case lines && startsComment(text[i:]):
		return r.lineEnd(i)
	case c == '/' && strings.HasPrefix(text[i:], "/*"):
		return r.commentEnd(i)
	}
	return i
}

// lineEnd returns the position of the line break after i, or the end of the text.
func (r *scanRun) lineEnd(i int) int {
	if i >= r.lastLine {
		return len(r.text)
	}
	size := strings.IndexAny(r.text[i:], "\r\n")
	if size < 0 {
		r.lastLine = i
		size = len(r.text) - i
	}
	r.search(size)
	return i + size
}

// commentEnd returns the position after a comment that starts at i, or i when nothing closes it.
func (r *scanRun) commentEnd(i int) int {
	if i >= r.unclosed {
		return i
	}
	size := strings.Index(r.text[i+2:], "*/")
	if size < 0 {
		r.unclosed = i
		r.search(len(r.text) - i)
		return i
	}
	r.search(size)
	return i + size + 4
}

// startsComment reports whether the text starts with a comment up to the end of the line, in any of the languages.
func startsComment(text string) bool {
	switch text[0] {
	case '#':
		return true
	case '/':
		return strings.HasPrefix(text, "//")
	case '<':
		return strings.HasPrefix(text, "<!--")
	case '-':
		return strings.HasPrefix(text, "-->")
	}
	return false
}

// importList reads what follows "import": a string literal, or names. Names in braces, which JavaScript has, are none of modules.
func (r *scanRun) importList(i int) {
	if r.reportArgument(i) {
		return
	}
	if at := r.skip(i, false); at < len(r.text) && r.text[at] == '.' {
		// In Go, a dot before the literal imports the names in a package.
		r.reportLiteral(r.skip(at+1, false))
		return
	}
	for path := range r.names(i) {
		if word := r.words[path[0]]; word != nil {
			r.report(matchPath(word.targets, path))
		}
		if !r.dollar {
			r.addImported(strings.Join(path, "."))
		}
	}
}

// isModifier reports whether a word before a name says how it is imported: Java's static, and Haskell's qualified.
func (r *scanRun) isModifier(path []string, next int) bool {
	following := r.text[next:r.wordAhead(next)]
	return len(path) == 1 && (path[0] == "static" || path[0] == "qualified") && following != "" && following != "as" && following != "from"
}

// names are those of a comma list, which may be in brackets. Each may have an alias. In Go, a name can stand before
// the literal of the module that it is for.
func (r *scanRun) names(i int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		i := r.skip(i, false)
		inBrackets := i < len(r.text) && r.text[i] == '('
		if inBrackets {
			i = r.skip(i+1, true)
		}
		for r.wordEnd(i) > i && !r.exhausted() {
			path, end := r.dotted(i)
			if next := r.skip(end, false); r.isModifier(path, next) {
				i = next
				continue
			}
			if word := r.words[path[0]]; word != nil && (word.keyword == keywordImport || word.keyword == keywordFrom) || !yield(path) {
				return
			}
			i = r.skip(end, inBrackets)
			if end := r.wordAhead(i); r.text[i:end] == "as" {
				i = r.skip(r.wordAhead(r.skip(end, inBrackets)), inBrackets)
			}
			if i >= len(r.text) || r.text[i] != ',' {
				r.reportLiteral(i)
				return
			}
			i = r.skip(i+1, inBrackets)
		}
	}
}

// fromPath reads what follows "from": a path and "import", or a string literal.
func (r *scanRun) fromPath(i int) {
	at := r.skip(i, true)
	if r.imported != nil && at < len(r.text) && r.text[at] == '.' {
		r.relativeImport(at)
		return
	}
	if r.reportLiteral(at) || at >= len(r.text) || !isWordByte(r.text[at]) {
		return
	}
	path, end := r.dotted(at)
	i = r.skip(end, false)
	after := r.wordAhead(i)
	if r.text[i:after] != "import" {
		return
	}
	if r.imported != nil {
		r.fromImport = i
		r.addImported(strings.Join(path, "."))
	}
	word := r.words[path[0]]
	if word == nil {
		return
	}
	r.report(matchPath(word.targets, path))
	for _, t := range word.targets {
		if slices.Equal(t.parts[:len(t.parts)-1], path) {
			r.importedPart(after, t)
		}
	}
}

// relativeImport passes over a "from" that names a module beside the source's own.
func (r *scanRun) relativeImport(i int) {
	for i < len(r.text) && r.text[i] == '.' {
		i++
		r.look(1)
	}
	i = r.skip(i, false)
	if end := r.wordAhead(i); r.text[i:end] != "import" {
		_, end = r.dotted(i)
		i = r.skip(end, false)
	}
	if r.text[i:r.wordAhead(i)] == "import" {
		r.fromImport = i
	}
}

// importedPart looks for the last part of a module in the list of "from a import b".
func (r *scanRun) importedPart(i int, t target) {
	for path := range r.names(i) {
		if path[0] == t.parts[len(t.parts)-1] {
			r.report(t.name)
			return
		}
	}
}
