package guards

import (
	"iter"
	"slices"
	"strings"
)

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
