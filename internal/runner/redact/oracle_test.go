package redact

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The oracle does with a whole text what a Stream does with pieces, in the plainest way: it decodes all of it, looks
// everywhere, and marks what it finds byte by byte.

// mapped is a decoded text. Byte i comes from the source between start[i] and end[i].
type mapped struct {
	text       []byte
	start, end []int
}

func mapSource(text []byte) mapped {
	m := mapped{text: text}
	for i := range text {
		m.start, m.end = append(m.start, i), append(m.end, i+1)
	}
	return m
}

// replaceAll decodes what a pattern matches.
func (m mapped) replaceAll(pattern *regexp.Regexp, decode func(string) []byte) mapped {
	var out mapped
	for i := 0; i < len(m.text); {
		if at := pattern.FindIndex(m.text[i:min(i+12, len(m.text))]); at != nil && at[0] == 0 {
			if b := decode(string(m.text[i : i+at[1]])); b != nil {
				for _, c := range b {
					out.add(c, m.start[i], m.end[i+at[1]-1])
				}
				i += at[1]
				continue
			}
		}
		out.add(m.text[i], m.start[i], m.end[i])
		i++
	}
	return out
}

func (m *mapped) add(c byte, start, end int) {
	m.text, m.start, m.end = append(m.text, c), append(m.start, start), append(m.end, end)
}

var (
	percentPattern = regexp.MustCompile(`^%[0-9a-fA-F]{2}`)
	formPattern    = regexp.MustCompile(`^(%[0-9a-fA-F]{2}|\+)`)
	jsonPattern    = regexp.MustCompile(`^\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbfav'"\\/])`)
)

func oraclePercent(s string) []byte {
	if s == "+" {
		return []byte(" ")
	}
	n, _ := strconv.ParseUint(s[1:], 16, 8)
	return []byte{byte(n)}
}

func oracleJSON(s string) []byte {
	if s[1] == 'x' {
		n, _ := strconv.ParseUint(s[2:], 16, 8)
		return []byte{byte(n)}
	}
	if s[1] != 'u' {
		return []byte{map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/', 'a': '\a', 'v': '\v', '\'': '\''}[s[1]]}
	}
	n, _ := strconv.ParseUint(s[2:6], 16, 16)
	switch {
	case len(s) == 12:
		low, _ := strconv.ParseUint(s[8:], 16, 16)
		return []byte(string(utf16.DecodeRune(rune(n), rune(low))))
	case n >= 0xDC80 && n <= 0xDCFF:
		return []byte{byte(n - 0xDC00)}
	case n >= 0xD800 && n <= 0xDFFF:
		return nil
	default:
		return utf8.AppendRune(nil, rune(n))
	}
}

// isBase64 reports whether a character is one of base64, in either alphabet.
func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}

// joined leaves out single line ends between digits.
func (m mapped) joined() mapped {
	var out mapped
	for i := 0; i < len(m.text); i++ {
		n := 0
		if bytes.HasPrefix(m.text[i:], []byte("\n")) {
			n = 1
		} else if bytes.HasPrefix(m.text[i:], []byte("\r\n")) {
			n = 2
		}
		if n > 0 && i > 0 && i+n < len(m.text) && isBase64(m.text[i-1]) && isBase64(m.text[i+n]) {
			i += n - 1
			continue
		}
		out.add(m.text[i], m.start[i], m.end[i])
	}
	return out
}

// digits returns the bytes that digits stand for: of each piece of per characters, from a character on. Bytes that aren't
// there are left out, and keep those before and after apart.
func (m mapped) bytesOf(from, per int, decode func([]byte) []byte) []mapped {
	var list []mapped
	var out mapped
	for i := from; i+per <= len(m.text); i += per {
		b := decode(m.text[i : i+per])
		if b == nil {
			list, out = append(list, out), mapped{}
			continue
		}
		for k, c := range b {
			// A byte of hexadecimal digits takes all characters, one of base64 two of four.
			first, last := i, i+per-1
			if per == 4 {
				first, last = i+k, i+k+1
			}
			out.add(c, m.start[first], m.end[last])
		}
	}
	return append(list, out)
}

func oracleHex(s []byte) []byte {
	n, err := strconv.ParseUint(string(s), 16, 8)
	if err != nil || s[0] == '+' || s[0] == '-' {
		return nil
	}
	return []byte{byte(n)}
}

// oracleBase64 decodes four characters.
func oracleBase64(s []byte) []byte {
	b, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_", "\n", "?", "\r", "?").Replace(string(s)))
	if err != nil {
		return nil
	}
	return b
}

// partial decodes base64 in which characters at the ends are missing or none: the text is padded with each of the
// characters that don't matter, so that only bytes count whose bits are all there.
func (m mapped) runs() []mapped {
	var list []mapped
	for i := 0; i < len(m.text); i++ {
		if !isBase64(m.text[i]) {
			continue
		}
		from := i
		for i < len(m.text) && isBase64(m.text[i]) {
			i++
		}
		list = append(list, mapped{m.text[from:i], m.start[from:i], m.end[from:i]})
	}
	return list
}

// base64Bytes decodes a run of base64, of which skip characters are missing before the first.
func (m mapped) base64Bytes(skip int) mapped {
	padded := mapped{}
	for range skip {
		padded.add('A', -1, -1)
	}
	padded.text = append(padded.text, m.text...)
	padded.start, padded.end = append(padded.start, m.start...), append(padded.end, m.end...)
	for len(padded.text)%4 != 0 {
		padded.add('A', -1, -1)
	}
	all := padded.bytesOf(0, 4, oracleBase64)[0]
	var whole mapped
	for i, c := range all.text {
		if all.start[i] >= 0 && all.end[i] >= 0 {
			whole.add(c, all.start[i], all.end[i])
		}
	}
	return whole
}

// views are all texts in which a value may occur.
func views(source []byte, hasSpace bool) []mapped {
	raw := mapSource(source)
	once := raw.replaceAll(jsonPattern, oracleJSON)
	texts := []mapped{raw, once, once.replaceAll(jsonPattern, oracleJSON), raw.replaceAll(percentPattern, oraclePercent)}
	digits := append([]mapped{raw.joined(), once.joined(), texts[3].joined()}, texts...)
	if hasSpace {
		form := raw.replaceAll(formPattern, oraclePercent)
		texts, digits = append(texts, form), append(digits, form)
	}
	list := texts
	for _, m := range digits {
		list = append(list, m.bytesOf(0, 2, oracleHex)...)
		if len(m.text) > 0 {
			list = append(list, m.bytesOf(1, 2, oracleHex)...)
		}
		for _, run := range m.runs() {
			for skip := range 4 {
				list = append(list, run.base64Bytes(skip))
			}
		}
	}
	return list
}

// oracleForm is one that a value has, in the order in which they count: the values first.
type oracleForm struct {
	value int
	text  []byte
}

func oracleForms(values []Value) []oracleForm {
	var first, others []oracleForm
	for i := range values {
		for k, text := range formsOf(&values[i]) {
			if k == 0 {
				first = append(first, oracleForm{i, text})
			} else {
				others = append(others, oracleForm{i, text})
			}
		}
	}
	return append(first, others...)
}

// oracle redacts a whole text.
func oracle(values []Value, text []byte) []byte {
	list, all := occurrences(values, text)
	return rewrite(text, all, func(start, end int64) string {
		return "[redacted: " + values[longest(list, all, start, end)].Name + "]"
	})
}

// occurrences are all those in a text.
func occurrences(values []Value, text []byte) (list []oracleForm, all []span) {
	list = oracleForms(values)
	hasSpace := false
	for _, f := range list {
		hasSpace = hasSpace || bytes.IndexByte(f.text, ' ') >= 0
	}
	for _, view := range views(text, hasSpace) {
		for i, f := range list {
			all = append(all, view.find(i, f.text)...)
		}
	}
	return list, all
}

func (m mapped) find(order int, text []byte) []span {
	var list []span
	for i := 0; i+len(text) <= len(m.text); i++ {
		at := bytes.Index(m.text[i:], text)
		if at < 0 {
			break
		}
		i += at
		list = append(list, span{start: int64(m.start[i]), end: int64(m.end[i+len(text)-1]), form: form{order: int32(order)}})
	}
	return list
}

// rewrite puts a mark in place of each group of occurrences that overlap.
func rewrite(text []byte, all []span, mark func(start, end int64) string) []byte {
	// linked tells of each byte whether an occurrence has it and the one before, covered whether one has it.
	covered, linked := make([]bool, len(text)), make([]bool, len(text))
	for _, one := range all {
		for i := one.start; i < one.end; i++ {
			covered[i] = true
			linked[i] = linked[i] || i > one.start
		}
	}
	var out []byte
	for i := 0; i < len(text); {
		if !covered[i] {
			out = append(out, text[i])
			i++
			continue
		}
		end := i + 1
		for end < len(text) && linked[end] {
			end++
		}
		out = append(out, mark(int64(i), int64(end))...)
		i = end
	}
	return out
}

// longest returns the value that names a group.
func longest(list []oracleForm, all []span, start, end int64) int {
	var best *span
	size := func(s *span) int { return len(list[s.form.order].text) }
	for i := range all {
		one := &all[i]
		switch {
		case one.start < start || one.end > end:
		case best == nil, size(one) > size(best),
			size(one) == size(best) && one.start < best.start,
			size(one) == size(best) && one.start == best.start && one.form.order < best.form.order:
			best = one
		}
	}
	return list[best.form.order].value
}
