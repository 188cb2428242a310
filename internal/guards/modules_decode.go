package guards

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxRounds is how often escapes within escapes are resolved.
const maxRounds = 4

// decodings returns the source, and the texts that result from decoding it, with what decoding noted.
func decodings(source string) (texts []string, notes decoder) {
	texts = []string{source}
	if folded := fold(source); folded != source {
		texts = append(texts, folded)
	}
	for _, text := range texts {
		plain, clear := decodeRounds(text, false)
		texts = append(texts, plain...)
		notes.add(clear)
		if clear.unclear {
			prefixed, again := decodeRounds(text, true)
			texts = append(texts, prefixed...)
			notes.add(again)
		}
	}
	return texts, notes
}

// add adds what another decoder noted.
func (r *decoder) add(other decoder) {
	r.unclear = r.unclear || other.unclear
	r.skipped += other.skipped
	if r.unreadable == "" {
		r.unreadable = other.unreadable
	}
}

// decodeRounds returns the result of each round of decoding, and what all rounds noted.
func decodeRounds(text string, prefixes bool) (texts []string, notes decoder) {
	for range maxRounds {
		r := decoder{text: text, prefixes: prefixes, maxSkipped: 2*len(text) + leastAhead}
		next := r.resolve()
		notes.add(decoder{unclear: r.unclear, skipped: r.skipped, unreadable: r.unreadable})
		if next == text || r.unreadable != "" {
			break
		}
		texts = append(texts, next)
		text = next
	}
	return texts, notes
}

// fold maps compatibility characters as Python does for identifiers, and every kind of white space or
// invisible character beyond ASCII to a space.
func fold(source string) string {
	if isASCII(source) {
		return source
	}
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf && (unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)) {
			return ' '
		}
		return r
	}, norm.NFKC.String(source))
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// decoder decodes backslash escapes, and joins strings that are adjacent or added: exec('imp' "\x6frt os") becomes
// exec('import os'). With prefixes, letters between two quotes are the prefix of a string, like the r of 'imp'r'ort';
// without, they are the content of a string, like the f of 'f'+'s'.
type decoder struct {
	text     string
	prefixes bool
	unclear  bool // prefixes would make a difference
	out      strings.Builder
	done     int // how much of text is written to out
	// skipped counts the bytes of comments between strings, and maxSkipped bounds them.
	skipped, maxSkipped int
	// unreadable says why the text can't be decoded.
	unreadable string
}

func (r *decoder) resolve() string {
	changed := false
	for i := 0; i < len(r.text) && r.skipped <= r.maxSkipped; {
		if byteClass[r.text[i]]&classSpecial == 0 {
			i++
			continue
		}
		size := r.special(i)
		if size == 0 {
			i++
			continue
		}
		changed = true
		i += size
		r.done = i
	}
	if !changed {
		return r.text
	}
	r.flush(len(r.text))
	return r.out.String()
}

// special decodes the text at i and returns its length, or 0 if the text needs no decoding.
func (r *decoder) special(i int) int {
	if r.text[i] == '\\' {
		r.flush(i)
		if hidesLetter(r.text[i:]) {
			r.unreadable = "it names a character by " + quote(r.text[i:min(len(r.text), i+40)]) + ", which may stand for a letter: write the letter"
		}
		return resolveEscape(&r.out, r.text[i:])
	}
	size := r.junction(r.text[i:])
	if size > 0 {
		r.flush(i)
	}
	return size
}

// flush copies the text before i.
func (r *decoder) flush(i int) {
	r.out.WriteString(r.text[r.done:i])
	r.done = i
}

func isQuote(c byte) bool { return c == '\'' || c == '"' || c == '`' }

// junction returns the length of what separates two strings that are joined: a closing and an opening quote with white
// space, a plus and prefix letters between them, or the edge of a placeholder that holds a string. It returns 0 if there
// is none.
func (r *decoder) junction(text string) int {
	i := 0
	if text[0] == '$' {
		i++
	}
	if i < len(text) && text[i] == '{' {
		i = skipBlank(text, i+1)
		if i < len(text) && isQuote(text[i]) {
			return i + 1
		}
		return 0
	}
	if i > 0 {
		return 0
	}
	i = r.skipBetween(text, 1)
	if i < len(text) && text[i] == '}' {
		return i + 1
	}
	if i < len(text) && text[i] == '+' {
		i = r.skipBetween(text, i+1)
	}
	end := openingQuote(text, i)
	if end > 2 && i == 1 {
		r.unclear = true
		if !r.prefixes {
			return 0
		}
	}
	return end
}

// openingQuote returns the position after a quote with its prefix letters at i, or 0.
func openingQuote(text string, i int) int {
	for n := 0; n < 2 && i < len(text) && strings.IndexByte("rbfuRBFU", text[i]) >= 0; n++ {
		i++
	}
	if i < len(text) && isQuote(text[i]) {
		return i + 1
	}
	return 0
}

// skipBetween skips white space and comments between two strings.
func (r *decoder) skipBetween(text string, i int) int {
	for {
		i = skipBlank(text, i)
		if i >= len(text) || !startsComment(text[i:]) && !strings.HasPrefix(text[i:], "/*") {
			return i
		}
		end := strings.IndexByte(text[i:], '\n')
		if strings.HasPrefix(text[i:], "/*") {
			if end = strings.Index(text[i:], "*/"); end >= 0 {
				end += 2
			}
		}
		if end < 0 {
			end = len(text) - i
		}
		if at := strings.IndexByte(text[i:i+end], '\r'); at >= 0 && text[i+1] != '*' {
			end = at
		}
		if r.skipped += end; r.skipped > r.maxSkipped {
			r.unreadable = "it has so many comments after strings that searching it takes too many steps"
			return len(text)
		}
		i += end
	}
}

func skipBlank(text string, i int) int {
	for i < len(text) && isBlank(text[i]) {
		i++
	}
	return i
}

func isBlank(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' || c == '\\'
}

// resolveEscape writes what the escape at the start of text stands for and returns its length.
func resolveEscape(out *strings.Builder, text string) int {
	if len(text) < 2 {
		return 0
	}
	switch c := text[1]; {
	case c == 'x':
		return hexEscape(out, text, 2, 2)
	case c == 'u' && strings.HasPrefix(text, "\\u{"):
		return braceEscape(out, text)
	case c == 'u':
		return hexEscape(out, text, 2, 4)
	case c == 'U':
		return hexEscape(out, text, 2, 8)
	case c == 'N':
		return nameEscape(out, text)
	case '0' <= c && c <= '7':
		return octalEscape(out, text)
	case c == '\n':
		return 2
	case c == '\r':
		return 2 + len(text[2:]) - len(strings.TrimPrefix(text[2:], "\n"))
	case strings.IndexByte("nrtfvab", c) >= 0:
		out.WriteByte(map[bool]byte{true: '\n', false: ' '}[c == 'n' || c == 'r'])
		return 2
	default:
		out.WriteByte(c)
		return 2
	}
}

func writeCode(out *strings.Builder, digits string, base, size int) int {
	code, err := strconv.ParseUint(digits, base, 32)
	if err != nil || code > unicode.MaxRune {
		return 0
	}
	out.WriteString(fold(string(rune(code))))
	return size
}

func hexEscape(out *strings.Builder, text string, from, digits int) int {
	if len(text) < from+digits {
		return 0
	}
	return writeCode(out, text[from:from+digits], 16, from+digits)
}

func braceEscape(out *strings.Builder, text string) int {
	end := strings.IndexByte(text[:min(len(text), 64)], '}')
	if end < 0 {
		return 0
	}
	return writeCode(out, text[3:end], 16, end+1)
}

func octalEscape(out *strings.Builder, text string) int {
	end := 2
	for end < len(text) && end < 4 && '0' <= text[end] && text[end] <= '7' {
		end++
	}
	return writeCode(out, text[1:end], 8, end)
}

// nameEscape decodes the names of ASCII letters and of the underscore, of which names of modules consist.
func nameEscape(out *strings.Builder, text string) int {
	end := strings.IndexByte(text[:min(len(text), 64)], '}')
	if end < 0 || !strings.HasPrefix(text, "\\N{") {
		return 0
	}
	name := strings.ToUpper(text[3:end])
	before, letter, ok := strings.Cut(name, " LETTER ")
	if name == "LOW LINE" {
		before, letter, ok = "", "_", true
	}
	if !ok || len(letter) != 1 {
		return 0
	}
	if strings.HasSuffix(before, "SMALL") {
		letter = strings.ToLower(letter)
	}
	out.WriteString(letter)
	return end + 1
}

// hidesLetter reports whether the text starts with the name of a character that isn't decoded and that Python may take for
// a letter of ASCII, as it does with the long s and with letters of mathematics.
func hidesLetter(text string) bool {
	if !strings.HasPrefix(text, "\\N{") || nameEscape(&strings.Builder{}, text) > 0 {
		return false
	}
	name, _, closed := strings.Cut(text[3:min(len(text), 100)], "}")
	name = strings.ToUpper(strings.ReplaceAll(name, "_", " "))
	if !closed || strings.Contains(name, " WITH ") {
		return false
	}
	for word := range strings.FieldsSeq(name) {
		if hasField("GREEK CYRILLIC ARABIC HEBREW HIRAGANA KATAKANA HANGUL THAI DEVANAGARI CJK BOX ARMENIAN GEORGIAN", word) {
			return false
		}
		if hasField("LATIN LETTER SMALL CAPITAL SCRIPT MATHEMATICAL FULLWIDTH NUMERAL SUPERSCRIPT SUBSCRIPT ORDINAL CIRCLED PARENTHESIZED SQUARE SQUARED "+
			"DOUBLE-STRUCK BLACK-LETTER LIGATURE KELVIN ANGSTROM SOURCE CONSTANT INDICATOR LINE DIGIT LOW ITALIC TELEPHONE NUMERO DIGRAPH", word) {
			return true
		}
	}
	return false
}

// unsupportedEncoding returns the encoding that one of the first two lines declares, as in Python and Ruby, unless ASCII
// characters stand for themselves in it.
func unsupportedEncoding(source string) string {
	for range 2 {
		line, rest := source, ""
		if end := strings.IndexAny(source, "\r\n"); end >= 0 {
			line, rest = source[:end], strings.TrimPrefix(source[end:], "\r")
			rest = strings.TrimPrefix(rest, "\n")
		}
		if name := declaredEncoding(line); name != "" && !plainEncoding(name) {
			return name
		}
		source = rest
	}
	return ""
}

func declaredEncoding(line string) string {
	_, comment, ok := strings.Cut(line, "#")
	if !ok {
		return ""
	}
	for {
		_, after, ok := strings.Cut(comment, "coding")
		if !ok {
			return ""
		}
		comment = after
		if after == "" || (after[0] != ':' && after[0] != '=') {
			continue
		}
		name := strings.TrimLeft(after[1:], " \t")
		end := strings.IndexFunc(name, func(r rune) bool { return r != '-' && r != '.' && (r >= utf8.RuneSelf || !isWordByte(byte(r))) })
		if end >= 0 {
			name = name[:end]
		}
		return name
	}
}

func plainEncoding(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	for _, plain := range []string{"utf-8", "utf8", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "iso-8859-15", "utf-8-sig", "utf-8-unix"} {
		if name == plain {
			return true
		}
	}
	return false
}
