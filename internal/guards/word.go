package guards

import "strings"

// word is an argument, as far as it is known before the command runs.
type word struct {
	// text is the whole word if known is true, and otherwise the start of each word that it expands to.
	text string
	// known says that it expands to exactly one word, which is text.
	known bool
	// many says that it may expand to several words, or to none.
	many bool
	// numbers says that it expands to digits, or to nothing.
	numbers bool
	// derived says that text is the value of a variable: reliable enough for an argument, but not for a name.
	derived bool
	// source is the word as it is written, for messages.
	source string
	// line and column are its position in the script; 0 for an argument of a structured call.
	line, column uint
}

// literal returns a known word.
func literal(text string) word { return word{text: text, known: true, source: text} }

// is reports whether the word is certainly this text.
func (w word) is(text string) bool { return w.known && w.text == text }

// mayBe reports whether the word may expand to this text, or to several words with this text among them.
func (w word) mayBe(text string) bool {
	if w.known {
		return w.text == text
	}
	return strings.HasPrefix(text, w.text)
}

// mayBeOption reports whether the word may expand to an option.
func (w word) mayBeOption() bool {
	if w.known {
		return len(w.text) > 1 && w.text[0] == '-'
	}
	return w.text == "" || w.text[0] == '-'
}

// isCertain reports whether the word is known, or starts with text that isn't the start of an option.
func (w word) isCertain() bool { return w.known || !w.mayBeOption() }

// isSingle reports whether the word expands to exactly one word, so that it is the value of the option before it.
func (w word) isSingle() bool { return w.known || !w.many }
