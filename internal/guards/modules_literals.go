package guards

import "strings"

// maxLiteral is longer than any module's name.
const maxLiteral = 300

// literalAt reads a string literal at i and reports the module that it names. It says whether there is one.
func (r *scanRun) literalAt(i int) bool {
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

// literalText is what stands up to the closing quote, or nothing when that is too far. Any quote closes:
// parts of a text that were joined may have had different ones.
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

// call reads what follows a function that imports: brackets, a keyword argument's name, and the literal.
func (r *scanRun) call(i int) {
	for !r.exhausted() {
		i = r.skip(i, true)
		if i >= len(r.text) || r.literalAt(i) {
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

// continuesCall says whether a word between a function and its literal is a keyword argument's name or a
// method that passes its argument on.
func (r *scanRun) continuesCall(start, end, next int) bool {
	switch r.text[start:end] {
	case "get", "pop", "call", "apply", "__getitem__", "__call__":
		return true
	}
	return next < len(r.text) && r.text[next] == '=' && !strings.HasPrefix(r.text[next:], "==")
}

// scanQuote looks at a quote anywhere: a literal that is exactly a module's name is remembered, and
// reported when it is the first argument of a call of something computed, like f()('m') or x['f']('m').
func (r *scanRun) scanQuote(i int) {
	if i+1 >= len(r.text) || len(r.special) == 0 && !r.mayName(i+1) {
		return
	}
	name := r.matchText(r.literalText(i + 1))
	if name == "" {
		return
	}
	if r.mention == "" || r.denied[name] {
		r.mention = name
	}
	if r.computedCall(i) {
		r.report(name)
	}
}

// mayName says whether a literal that starts at i can be a module's name; it costs less than looking closely.
func (r *scanRun) mayName(i int) bool {
	if strings.HasPrefix(r.text[i:], "node:") || isBlank(r.text[i]) {
		return true
	}
	if !r.first[r.text[i]] {
		return false
	}
	word := r.words[r.text[i:min(r.wordAhead(i), i+r.longest+1)]]
	return word != nil && len(word.targets) > 0
}

func (r *scanRun) computedCall(i int) bool {
	i = r.backOver(i)
	if i < 0 || r.text[i] != '(' {
		return false
	}
	i = r.backOver(i)
	return i >= 0 && (r.text[i] == ')' || r.text[i] == ']')
}

// backOver returns the position of the last character before i that is no white space.
func (r *scanRun) backOver(i int) int {
	for i--; i >= 0 && isBlank(r.text[i]); i-- {
		r.look(1)
	}
	return i
}

// fetchCall finds a call of fetch, and the ways to call it through itself.
func (r *scanRun) fetchCall(end int) {
	i := r.skip(end, true)
	rest := strings.TrimPrefix(r.text[min(i, len(r.text)):], "?.")
	for _, start := range []string{"(", "`", ".call", ".apply", ".bind"} {
		if strings.HasPrefix(rest, start) {
			r.report("fetch")
			return
		}
	}
}
