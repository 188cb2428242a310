package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// form is one way in which a value is written.
type form struct {
	text []byte
	// size is how many bytes of the value it stands for. isPlain says that it is written as it stands.
	size    int
	isPlain bool
}

// coreOf is a value without what programs drop around it: line ends, and other white space if enough is left.
func coreOf(value []byte) []byte {
	if core := bytes.TrimSpace(value); len(core) >= MinLength {
		return core
	}
	return bytes.Trim(value, "\r\n")
}

// formsOf are the forms of a value, nothing for one that is too short.
func formsOf(value []byte) (all []form) {
	value, pasted := coreOf(value), bytes.Trim(value, "\r\n")
	if len(value) < MinLength {
		return nil
	}
	seen := map[string]bool{}
	var add func(text []byte, size int, isPlain bool)
	add = func(text []byte, size int, isPlain bool) {
		if len(text) < MinLength || seen[string(text)] {
			return
		}
		seen[string(text)] = true
		all = append(all, form{text, size, isPlain})
		if !bytes.ContainsAny(text, "\r\n") {
			return
		}
		for line := range bytes.FieldsFuncSeq(text, func(r rune) bool { return r == '\r' || r == '\n' }) {
			if line = bytes.TrimSpace(line); !isBoundary(line) {
				add(line, size*len(line)/len(text), isPlain)
			}
		}
	}
	unix := bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n"))
	wholes := [][]byte{value, unix, bytes.ReplaceAll(unix, []byte("\n"), []byte("\r\n"))}
	for _, whole := range wholes {
		add(whole, len(whole), true)
	}
	for _, whole := range wholes {
		for _, text := range encodings(whole) {
			add(text, len(whole), false)
		}
	}
	if len(pasted) > len(value) {
		// White space before a value moves what stands in each line.
		for _, text := range inLines(pasted) {
			add(text, len(pasted), false)
		}
	}
	return all
}

// isBoundary reports whether a line is the first or the last of a key in PEM. Public certificates have the same ones.
func isBoundary(line []byte) bool {
	isFirst, isLast := bytes.HasPrefix(line, []byte("-----BEGIN ")), bytes.HasPrefix(line, []byte("-----END "))
	return (isFirst || isLast) && bytes.HasSuffix(line, []byte("-----"))
}

func encodings(value []byte) (all [][]byte) {
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for phase := range 3 {
			inside, atEnd := base64At(encoding, value, phase)
			all = append(all, inside, atEnd)
		}
	}
	all = append(all, inLines(value)...)
	lower := []byte(hex.EncodeToString(value))
	all = append(all, lower, bytes.ToUpper(lower))
	for _, kept := range keptInPercent {
		for _, digits := range []string{"0123456789ABCDEF", "0123456789abcdef"} {
			all = append(all, percentEncoded(value, &kept, digits, "%20"))
			if bytes.IndexByte(value, ' ') >= 0 && kept['a'] {
				all = append(all, percentEncoded(value, &kept, digits, "+"))
			}
		}
	}
	for options, differ := jsonOptions(0), differencesIn(value); options <= differ; options++ {
		if options&^differ == 0 {
			all = append(all, options.escaped(value))
		}
	}
	gson, dotNET := escapesHTML|escapesAsGson, escapesHTML|escapesNonASCII|upperDigits|escapesAsDotNET
	return append(all, gson.escaped(value), dotNET.escaped(value), keepsQuotes.escaped(value))
}

// inLines is base64 of a value alone, in lines as programs wrap it.
func inLines(value []byte) (all [][]byte) {
	inside, atEnd := base64At(base64.RawStdEncoding, value, 0)
	for _, columns := range []int{76, 64} {
		for _, end := range []string{"\n", "\r\n"} {
			all = append(all, wrapped(inside, columns, end), wrapped(atEnd, columns, end))
		}
	}
	return all
}

// base64At are the characters that a value alone decides, phase bytes after the beginning of a group of three: inside of a longer text,
// and at its end.
func base64At(encoding *base64.Encoding, value []byte, phase int) (inside, atEnd []byte) {
	text := encoding.AppendEncode(nil, append(make([]byte, phase), value...))
	from := (8*phase + 5) / 6
	return text[from : 8*(phase+len(value))/6], text[from:]
}

// wrapped has line ends after so many columns.
func wrapped(text []byte, columns int, end string) (lines []byte) {
	for len(text) > columns {
		lines = append(append(lines, text[:columns]...), end...)
		text = text[columns:]
	}
	return append(lines, text...)
}

// keptInPercent are what encoders leave as it is: letters and digits, with some other characters; and nothing.
var keptInPercent = func() (all [][256]bool) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for _, more := range []string{"-._~", "-._~/", "-._~!'()*", "-._~$&+=:@", "-._~$&+,;=", "-._~!'()*;/?:@&=+$,#", "-._~!$%&'()*+,", "-._*"} {
		var kept [256]bool
		for _, c := range []byte(letters + more) {
			kept[c] = true
		}
		all = append(all, kept)
	}
	return append(all, [256]bool{})
}()

func percentEncoded(value []byte, kept *[256]bool, digits, space string) []byte {
	out := make([]byte, 0, len(value)+len(value)/4)
	for _, c := range value {
		switch {
		case kept[c]:
			out = append(out, c)
		case c == ' ' && kept['a']:
			out = append(out, space...)
		default:
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return out
}

// jsonOptions are in what encoders of JSON differ.
type jsonOptions int

const (
	escapesHTML jsonOptions = 1 << iota
	escapesSlash
	escapesNonASCII
	upperDigits
	// Java's Gson and .NET escape more signs, which values in base64 have. Neither differs in anything else.
	escapesAsGson
	escapesAsDotNET
	// Within single quotes, as Python, bash and Node.js show a document in JSON with several lines, its own quotes stand.
	keepsQuotes
)

// differencesIn are the options that make a difference to a value.
func differencesIn(value []byte) (differ jsonOptions) {
	for _, r := range string(value) {
		switch {
		case r == '<' || r == '>' || r == '&':
			differ |= escapesHTML | upperDigits
		case r == '/':
			differ |= escapesSlash
		case r < ' ':
			differ |= upperDigits
		case r >= 0x7F:
			differ |= escapesHTML | escapesNonASCII | upperDigits
		}
	}
	return differ
}

func (o jsonOptions) escaped(value []byte) (out []byte) {
	out = make([]byte, 0, len(value)+len(value)/4)
	code := "\\u%04x"
	if o&upperDigits != 0 {
		code = "\\u%04X"
	}
	for len(value) > 0 {
		r, size := utf8.DecodeRune(value)
		short := strings.IndexByte("\b\f\n\r\t\"\\", value[0])
		switch {
		case o&escapesAsGson != 0 && (r == '=' || r == '\''), o&escapesAsDotNET != 0 && strings.ContainsRune("'\"+`", r):
			out = fmt.Appendf(out, code, r)
		case short >= 0 && (r != '"' || o&keepsQuotes == 0):
			out = append(out, '\\', "bfnrt\"\\"[short])
		case r == '/' && o&escapesSlash != 0:
			out = append(out, '\\', '/')
		case r < ' ', o&escapesHTML != 0 && (r == '<' || r == '>' || r == '&' || r == 0x2028 || r == 0x2029), r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, code, r)
		case r > 0xFFFF && o&escapesNonASCII != 0:
			r -= 0x10000
			out = fmt.Appendf(fmt.Appendf(out, code, 0xD800|r>>10), code, 0xDC00|r&0x3FF)
		case r >= 0x7F && o&escapesNonASCII != 0:
			out = fmt.Appendf(out, code, r)
		default:
			out = append(out, value[:size]...)
		}
		value = value[size:]
	}
	return out
}
