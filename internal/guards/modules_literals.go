package guards

import "strings"

// maxLiteral is longer than any module's name.
const maxLiteral = 300

// reportLiteral records the module that a string literal at i names. It returns whether there is a literal.
func (r *scanRun) reportLiteral(i int) bool {
	if i >= len(r.text) {
		return false
	}
	open := openingQuote(r.text, i)
	if open == 0 {
		return false
	}
	r.report(r.matchText(r.literalText(open)))
	return true
}

// literalText returns the text up to the closing quote, or nothing if the quote is too far away. Any quote closes, since
// parts of a joined string may have had different ones.
func (r *scanRun) literalText(open int) string {
	rest := r.text[open:min(len(r.text), open+maxLiteral)]
	end := strings.IndexAny(rest, "'\"`")
	if end < 0 {
		r.search(len(rest))
		return ""
	}
	r.search(end)
	return rest[:end]
}

// reportArgument records the module that the argument of an importing function names. It skips brackets and the name of a
// keyword argument.
func (r *scanRun) reportArgument(i int) {
	for !r.exhausted() {
		i = r.skip(i, true)
		if i >= len(r.text) || r.reportLiteral(i) {
			return
		}
		switch c := r.text[i]; {
		case strings.IndexByte("([*?.=", c) >= 0:
			i++
		case isWordByte(c):
			end := r.wordAhead(i)
			if next := r.skip(end, true); !r.continuesCall(i, end, next) {
				return
			}
			i = end
		default:
			return
		}
	}
}

// continuesCall reports whether a word between a function and its literal is the name of a keyword argument, or a method
// that passes its argument on.
func (r *scanRun) continuesCall(start, end, next int) bool {
	switch r.text[start:end] {
	case "get", "pop", "call", "apply", "__getitem__", "__call__":
		return true
	}
	return next < len(r.text) && r.text[next] == '=' && !strings.HasPrefix(r.text[next:], "==")
}

// scanQuote notes a string literal that is the name of a module. It records the module as used if the literal is the
// first argument of a computed function, as in f()('m') and x['f']('m').
func (r *scanRun) scanQuote(i int) {
	if rest, ok := strings.CutPrefix(r.text[i+1:], "fetch"); ok && r.dollar && r.fetch && len(rest) > 1 && isQuote(rest[0]) {
		if at := r.skip(i+len("'fetch'"), true); at < len(r.text) && r.text[at] == ']' {
			r.report("fetch")
		}
	}
	if i+1 >= len(r.text) || len(r.quotedOnly) == 0 && !r.canNameModule(i+1) {
		return
	}
	name := r.matchText(r.literalText(i + 1))
	if name == "" {
		return
	}
	if r.mentioned == "" || r.denied[name] {
		r.mentioned = name
	}
	if r.isComputedCall(i) {
		r.report(name)
	}
}

// canNameModule reports whether a literal that starts at i can be the name of a module. It is faster than matchText.
func (r *scanRun) canNameModule(i int) bool {
	if strings.HasPrefix(r.text[i:], "node:") || isBlank(r.text[i]) {
		return true
	}
	if !r.first[r.text[i]] {
		return false
	}
	word := r.words[r.text[i:min(r.wordAhead(i), i+r.longest+1)]]
	return word != nil && len(word.targets) > 0
}

func (r *scanRun) isComputedCall(i int) bool {
	i = r.previousNonBlank(i)
	if i < 0 || r.text[i] != '(' {
		return false
	}
	i = r.previousNonBlank(i)
	return i >= 0 && (r.text[i] == ')' || r.text[i] == ']')
}

// previousNonBlank returns the position of the last character before i that isn't white space.
func (r *scanRun) previousNonBlank(i int) int {
	for i--; i >= 0 && isBlank(r.text[i]); i-- {
		r.look(1)
	}
	return i
}

// reportFetch records a call of fetch, also by its methods call, apply and bind.
func (r *scanRun) reportFetch(end int) {
	i := r.skip(end, true)
	// In JavaScript the function itself is a value, as in (0,fetch)(url).
	line := r.skip(end, false)
	if r.dollar && (line >= len(r.text) || strings.IndexByte("),:;]}|&\r\n", r.text[line]) >= 0) {
		r.report("fetch")
		return
	}
	rest := strings.TrimPrefix(r.text[min(i, len(r.text)):], "?.")
	for _, start := range []string{"(", "`", ".call", ".apply", ".bind"} {
		if strings.HasPrefix(rest, start) {
			r.report("fetch")
			return
		}
	}
}
