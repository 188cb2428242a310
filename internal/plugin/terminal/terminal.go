// Package terminal makes text safe to print on a terminal.
//
// Input is any sequence of bytes, such as a command's output or a message from a cluster. In the output, control
// characters appear in caret notation (^[ for escape), characters that reorder or hide text by their code point
// (<U+202E>), and bytes that aren't UTF-8 in hexadecimal (<9B>). Newlines, tabs and the carriage return before a
// newline pass.
//
// Invariants: the output is valid UTF-8 and holds no other control or formatting character, so it can't move the
// cursor, set a title, write to the clipboard or disguise text; it doesn't depend on how the input is split over
// writes; text without such characters passes unchanged.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether a reader or writer is a terminal.
func Is(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Safe returns the text with its control and formatting characters made visible.
func Safe(text string) string {
	safe, _ := appendSafe(nil, []byte(text), true)
	return string(safe)
}

// SafeLine is Safe for a text that must stay on one line: line breaks and tabs become spaces.
func SafeLine(text string) string {
	return Safe(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(text))
}

// Writer makes what is written to it visible and passes it on. It holds back a character or a line break that a
// write cuts, until the next write or Flush. It is safe for concurrent use.
type Writer struct {
	mu      sync.Mutex
	out     io.Writer
	pending []byte
}

// NewWriter returns a Writer that passes safe text on to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.pass(append(w.pending, p...), false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what was held back.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pass(w.pending, true)
}

func (w *Writer) pass(input []byte, final bool) error {
	safe, rest := appendSafe(nil, input, final)
	w.pending = append([]byte(nil), rest...)
	if len(safe) == 0 {
		return nil
	}
	_, err := w.out.Write(safe)
	return err
}

// appendSafe appends the visible form of src to dst. Unless src is final, it returns an incomplete end as rest.
func appendSafe(dst, src []byte, final bool) (safe, rest []byte) {
	for len(src) > 0 {
		r, size := utf8.DecodeRune(src)
		switch {
		case !final && (string(src) == "\r" || !utf8.FullRune(src)):
			return dst, src
		case r == utf8.RuneError && size == 1:
			dst = fmt.Appendf(dst, "<%02X>", src[0])
		case r == '\r' && len(src) > 1 && src[1] == '\n':
			dst, size = append(dst, "\r\n"...), 2
		case r == '\n' || r == '\t':
			dst = append(dst, src[0])
		case r < ' ' || r == 0x7f:
			dst = append(dst, '^', byte(r)^0x40)
		case isFormatting(r):
			dst = fmt.Appendf(dst, "<U+%04X>", r)
		default:
			dst = append(dst, src[:size]...)
		}
		src = src[size:]
	}
	return dst, nil
}

// isFormatting reports whether a terminal acts on a character beyond ASCII, or a reader can't see it. Joiners, selectors
// of a variant and the marks that some scripts write before numbers are part of ordinary text.
func isFormatting(r rune) bool {
	switch {
	case isPartOfText(r):
		return false
	case strings.ContainsRune(blank, r):
		return true
	default:
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
}

// blank are letters and marks that nobody sees: the grapheme joiner, the fillers of Hangul and the empty Braille pattern.
const blank = "\u034f\u115f\u1160\u3164\uffa0\u2800"

// isPartOfText reports whether nobody sees a character, and ordinary text needs it.
func isPartOfText(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	return r == zeroWidthNonJoiner || r == zeroWidthJoiner || unicode.In(r, unicode.Prepended_Concatenation_Mark, unicode.Variation_Selector)
}

// SafeStrict is Safe for a text that somebody decides about: the characters of ordinary text that nobody sees, such as those within
// emoji, are visible too.
func SafeStrict(text string) string {
	var b strings.Builder
	for _, r := range Safe(text) {
		if isPartOfText(r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) {
			fmt.Fprintf(&b, "<U+%04X>", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
