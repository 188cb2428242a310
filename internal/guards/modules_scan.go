package guards

import (
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

// literal is the string literal at i, empty if it doesn't end soon. It returns whether one begins there.
func (r *scanRun) literal(i int) (text string, begins bool) {
	if i >= len(r.text) || !isQuote(r.text[i]) {
		return "", false
	}
	text = r.text[i+1 : min(len(r.text), i+1+maxLiteral)]
	end := strings.IndexByte(text, r.text[i])
	if end < 0 {
		r.search(len(text))
		return "", true
	}
	r.search(end)
	return text[:end], true
}

// reportLiteral records the module that a string literal at i names. It returns whether there is a literal.
func (r *scanRun) reportLiteral(i int) bool {
	text, begins := r.literal(i)
	if text != "" {
		r.report(r.matchText(text))
		r.addImported(strings.TrimPrefix(strings.TrimSpace(text), "node:"))
	}
	return begins
}

// reportScheme reports the module of a literal of JavaScript that begins with "node:", wherever it stands: the function that imports it may
// have another name. Whether it is imported isn't known.
func (r *scanRun) reportScheme(start, end int) {
	if r.dollar && start > 0 && end < len(r.text) && r.text[end] == ':' {
		text, _ := r.literal(start - 1)
		r.report(r.matchText(text))
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
