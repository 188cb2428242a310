// Package anycase replaces known values in texts where letters have lost their case: in names of hosts, which clients and the
// resolver write in lower case, and in messages about them.
//
// Its input is the values of package redact, and whole texts that package redact has been through. A value counts in any case as
// it stands, escaped as Go quotes it, once or twice, and in base64 of either alphabet at any offset. Hexadecimal digits have
// no case to lose: package redact finds them. It isn't for output: it looks for each value in all of the text.
//
// No value is in what any type of this package prints.
package anycase

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"toolcall.dev/operator/internal/runner/redact"
)

// maxEncoded bounds the values whose base64 is looked for: a name has no room for more.
const maxEncoded = 253

// Values are known values. They don't change.
type Values struct {
	names []string
	forms []form
}

// form is what is looked for, in lower case.
type form struct {
	text string
	name int
	// sharesFirst and sharesLast say that the character before, and the one behind, have bits of the value too.
	sharesFirst, sharesLast bool
}

// New returns the values that are long enough to be matched.
func New(values []redact.Value) *Values {
	v := &Values{}
	for i := range values {
		value := bytes.Trim(values[i].Value, "\r\n")
		if len(value) < redact.MinLength {
			continue
		}
		name := len(v.names)
		v.names = append(v.names, values[i].Name)
		once := inQuotes(string(value), strconv.QuoteToASCII)
		plain := []string{string(value), once, inQuotes(once, strconv.Quote)}
		for _, text := range slices.Compact(plain) {
			v.forms = append(v.forms, form{text: lower(text), name: name})
		}
		if len(value) > maxEncoded {
			continue
		}
		for offset := range 3 {
			one := inBase64(value, offset)
			one.name = name
			v.forms = append(v.forms, one)
			one.text = strings.NewReplacer("-", "+", "_", "/").Replace(one.text)
			v.forms = append(v.forms, one)
		}
	}
	return v
}

func inQuotes(text string, quote func(string) string) string {
	quoted := quote(text)
	return quoted[1 : len(quoted)-1]
}

// inBase64 are the characters that have bits of a value alone, which stands behind some bytes.
func inBase64(value []byte, offset int) form {
	encoded := base64.RawURLEncoding.EncodeToString(append(make([]byte, offset), value...))
	// The first characters have bits of the bytes before: none, 8 bits of 12, or 16 bits of 18.
	first := []int{0, 2, 3}[offset]
	f := form{sharesFirst: offset > 0, sharesLast: (offset+len(value))%3 != 0}
	last := len(encoded)
	if f.sharesLast {
		last--
	}
	f.text = lower(encoded[first:last])
	return f
}

// lower changes ASCII letters alone, so that positions stay.
func lower(text string) string {
	out := []byte(text)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return string(out)
}

// span is an occurrence, or several that overlap, with the name of the longest.
type span struct{ start, end, name, length int }

// Text returns a text without the values, and how often each was in it.
func (v *Values) Text(text string) (string, []redact.Count) {
	spans := v.find(text)
	if len(spans) == 0 {
		return text, nil
	}
	var out strings.Builder
	counts := make([]int64, len(v.names))
	done := 0
	for _, s := range spans {
		out.WriteString(text[done:s.start] + v.mark(s.name))
		counts[s.name]++
		done = s.end
	}
	out.WriteString(text[done:])
	var list []redact.Count
	for name, n := range counts {
		if n > 0 {
			list = append(list, redact.Count{Name: v.names[name], Count: n})
		}
	}
	return out.String(), list
}

func (v *Values) mark(name int) string { return markStart + v.names[name] + "]" }

const markStart = "[redacted: "

// maxName is longer than any name of a variable.
const maxName = 512

// find returns the occurrences, in order and apart.
func (v *Values) find(text string) []span {
	folded, marks := lower(text), v.marksIn(text)
	var all []span
	for _, f := range v.forms {
		all = append(all, f.find(text, folded, marks)...)
	}
	slices.SortStableFunc(all, func(a, b span) int { return a.start - b.start })
	var apart []span
	for _, one := range all {
		if len(apart) == 0 || one.start >= apart[len(apart)-1].end {
			apart = append(apart, one)
			continue
		}
		last := &apart[len(apart)-1]
		last.end = max(last.end, one.end)
		if one.length > last.length {
			last.name, last.length = one.name, one.length
		}
	}
	return apart
}

// find returns the occurrences of a form outside of marks, in order. Those that overlap are one.
func (f *form) find(text, folded string, marks []span) (all []span) {
	for at := 0; ; at++ {
		n := strings.Index(folded[at:], f.text)
		if n < 0 {
			return all
		}
		at += n
		one := span{at, at + len(f.text), f.name, len(f.text)}
		for len(marks) > 0 && marks[0].end < one.end {
			marks = marks[1:]
		}
		if len(marks) > 0 && marks[0].start <= one.start {
			continue
		}
		if f.sharesFirst && one.start > 0 && isBase64(text[one.start-1]) {
			one.start--
		}
		if f.sharesLast && one.end < len(text) && isBase64(text[one.end]) {
			one.end++
		}
		if len(all) > 0 && one.start < all[len(all)-1].end {
			all[len(all)-1].end = one.end
			continue
		}
		all = append(all, one)
	}
}

// marksIn are the marks in a text that stand for values already, in order and apart.
func (v *Values) marksIn(text string) (marks []span) {
	for at := 0; ; {
		n := strings.Index(text[at:], markStart)
		if n < 0 {
			return marks
		}
		start := at + n
		at = start + len(markStart)
		name, _, isClosed := strings.Cut(text[at:min(len(text), at+maxName+1)], "]")
		if isClosed && slices.Contains(v.names, name) {
			marks = append(marks, span{start: start, end: at + len(name) + 1})
		}
	}
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}

// Format prints how many values there are.
func (v *Values) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "anycase.Values(%d values)", len(v.names))
}
