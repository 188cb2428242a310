package guards

import "strings"

// word is an argument as far as it is known before anything runs.
type word struct {
	// text is the whole word when known is true, else what every word that it becomes starts with.
	text string
	// known says that text is all of it, and that it becomes exactly one word.
	known bool
	// many says that it may become several words, or none.
	many bool
	// numbers says that it becomes digits, or nothing.
	numbers bool
	// derived says that text was found by following a variable: good enough for an argument, not for a name.
	derived bool
	// source is how it was written, for messages.
	source string
	// line and column are where it stands in the script; 0 for an argument of a structured call.
	line, column uint
}

// literal is a word that is known.
func literal(text string) word { return word{text: text, known: true, source: text} }

// is says whether the word is certainly this text.
func (w word) is(text string) bool { return w.known && w.text == text }

// mayBe says whether the word could turn out as this text, or several words of which one is.
func (w word) mayBe(text string) bool {
	if w.known {
		return w.text == text
	}
	return strings.HasPrefix(text, w.text)
}

// mayBeOption says whether the word could turn out as an option.
func (w word) mayBeOption() bool {
	if w.known {
		return len(w.text) > 1 && w.text[0] == '-'
	}
	return w.text == "" || w.text[0] == '-'
}

// certain says whether the word is known or is at least one word that starts with known text, so that it
// can't turn into an option.
func (w word) certain() bool { return w.known || !w.mayBeOption() }

// argument says whether the word is exactly one word, so that it can be the value of the option before it.
func (w word) argument() bool { return w.known || !w.many }

// refusal says why something may not run.
type refusal struct {
	// what was refused and why; fix is what would pass.
	what, fix string
	// parse says that a script could not be read at all.
	parse bool
	line  uint
	col   uint
}

// refuse blames a word.
func refuse(at word, what, fix string) *refusal {
	return &refusal{what: what, fix: fix, line: at.line, col: at.column}
}

// placed gives a refusal without a position, or one inside of another text, the position of at.
func (r *refusal) placed(at word) *refusal {
	if r != nil && at.line > 0 {
		r.line, r.col = at.line, at.column
	}
	return r
}
