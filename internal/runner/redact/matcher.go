package redact

import (
	"fmt"
	"slices"
)

// Matcher knows the values. It doesn't change, and may be used by several streams at once.
type Matcher struct {
	names []string
	marks [][]byte
	known *patterns
	// hasForeign says that there is a foreign value.
	hasForeign bool
	forms      int32
}

// patterns are what is looked for.
type patterns struct {
	automaton *automaton
	filter    *filter
	// hasSpace says that a form has a space, which may be written as a +.
	hasSpace bool
}

func (p *patterns) isEmpty() bool { return len(p.automaton.forms) == 0 }

// New returns a Matcher for the values, which it doesn't keep. It refuses values that are too many or too long.
func New(values []Value) (*Matcher, error) {
	if err := checkValues(values); err != nil {
		return nil, err
	}
	m := &Matcher{known: &patterns{automaton: newAutomaton(), filter: newFilter()}}
	m.hasForeign = slices.ContainsFunc(values, func(v Value) bool { return v.Foreign })
	derived := make([][][]byte, len(values))
	for i := range values {
		m.names = append(m.names, values[i].Name)
		m.marks = append(m.marks, []byte("[redacted: "+values[i].Name+"]"))
		list := formsOf(&values[i])
		if len(list) == 0 {
			continue
		}
		m.add(i, &values[i], list[0])
		derived[i] = list[1:]
	}
	// What is a value and another form of another one is the value.
	for i, list := range derived {
		for _, text := range list {
			m.add(i, &values[i], text)
		}
	}
	m.known.automaton.link()
	return m, nil
}

func (m *Matcher) add(index int, v *Value, text []byte) {
	p := m.known
	p.automaton.add(form{value: index, length: int32(len(text)), order: m.forms, isForeign: v.Foreign}, text)
	p.filter.add(text)
	p.hasSpace = p.hasSpace || slices.Contains(text, ' ')
	m.forms++
}

// Format prints how many values there are.
func (m *Matcher) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "redact.Matcher(%d values)", len(m.names))
}

// Bytes returns a text without the values, and how often each was in it. The text is whole.
func (m *Matcher) Bytes(text []byte) ([]byte, []Count) {
	s := m.NewStream()
	out := s.Flush(s.Append(make([]byte, 0, len(text)), text))
	return out, s.Counts()
}

// Text is Bytes for a string.
func (m *Matcher) Text(text string) (string, []Count) {
	out, counts := m.Bytes([]byte(text))
	return string(out), counts
}

// Count says how many marks with a name there are.
type Count struct {
	Name  string
	Count int64
}
