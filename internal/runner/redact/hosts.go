package redact

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
)

// maxHostName is how long the name of a host can be: no longer value is in one.
const maxHostName = 253

// HostText is Text for a text that names hosts, which clients and resolvers write in lower case: a value counts in any case, and also
// escaped as Go quotes it, once or twice. It isn't for output.
func (m *Matcher) HostText(text string) (string, []Count) {
	spans := slices.Concat(m.Spans([]byte(text)), m.folded.Spans(lower([]byte(text))))
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	var out []byte
	counts, done := map[string]int64{}, 0
	for len(spans) > 0 {
		one, longest := spans[0], spans[0]
		for spans = spans[1:]; len(spans) > 0 && spans[0].Start < one.End; spans = spans[1:] {
			one.End = max(one.End, spans[0].End)
			if spans[0].End-spans[0].Start > longest.End-longest.Start {
				longest = spans[0]
			}
		}
		out = append(append(out, text[done:one.Start]...), longest.Mark...)
		counts[longest.Name]++
		done = one.End
	}
	var list []Count
	for _, name := range m.names {
		if n := counts[name]; n > 0 {
			list = append(list, Count{name, n})
			delete(counts, name)
		}
	}
	return string(append(out, text[done:]...)), list
}

// foldedForms are the forms of a value in lower case, nothing for one that is too short, or too long for the name of a host.
func foldedForms(value []byte) (all []form) {
	value = coreOf(value)
	if len(value) > maxHostName {
		return nil
	}
	seen := map[string]bool{}
	once := inQuotes(string(value), strconv.QuoteToASCII)
	quoted := []form{{text: []byte(once), size: len(value)}, {text: []byte(inQuotes(once, strconv.Quote)), size: len(value)}}
	for _, f := range append(formsOf(value), quoted...) {
		if f.text = lower(f.text); len(value) >= MinLength && !seen[string(f.text)] {
			seen[string(f.text)] = true
			all = append(all, f)
		}
	}
	return all
}

func inQuotes(text string, quote func(string) string) string {
	quoted := quote(text)
	return quoted[1 : len(quoted)-1]
}

// lower changes ASCII letters alone, so that positions stay.
func lower(text []byte) []byte {
	out := bytes.Clone(text)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}
