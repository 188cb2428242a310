package redact

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Matcher knows the values. It doesn't change, and may be used by several streams at once.
type Matcher struct {
	names []string
	marks [][]byte
	// needles are all forms of all values, in the order of their bytes, and nodes the tree of them. roots are its first nodes, by the
	// windows that lead to them.
	needles []needle
	nodes   []node
	roots   map[uint64]int32
	// filter tells whether four bytes are among the first eight of a form. offsets, which is looked at less, has a bit for each place
	// there.
	filter  [1 << filterBits / 64]uint64
	offsets []uint8
	// beginnings has what a text may end with that can become a form: the length, and up to seven bytes. firsts are the first bytes
	// of values as they stand. Foreign values aren't among them.
	beginnings map[uint64]struct{}
	firsts     [256]bool
	// heldLine is how much of a line is held back for foreign values, 0 without such.
	heldLine int64
	// folded knows the forms in lower case, for HostText; nil in itself.
	folded *Matcher
}

// needle is a form of a value.
type needle struct {
	form
	value     int
	isForeign bool
	// repeats has for each place how many bytes from there on are as at the beginning; nil where that is always less than a window.
	repeats []int32
}

const (
	// window is how many bytes of a form lead to a node of the tree, gram how many the filter looks at, and stride the distance of two
	// looks: a window has exactly one of them.
	window = MinLength
	gram   = 4
	stride = window - gram + 1

	filterBits = 17

	// minHeldLine is how much of a line is held back for foreign values at least.
	minHeldLine = 64 << 10
)

// New returns a Matcher for the values, which it doesn't keep. It refuses values that are too many or too long.
func New(values []Value) (*Matcher, error) {
	if err := checkValues(values); err != nil {
		return nil, err
	}
	m := newMatcher(values, formsOf)
	m.folded = newMatcher(values, foldedForms)
	return m, nil
}

func newMatcher(values []Value, formsOf func(value []byte) []form) *Matcher {
	m := &Matcher{beginnings: map[uint64]struct{}{}, offsets: make([]uint8, 1<<filterBits)}
	for i := range values {
		v := &values[i]
		m.names = append(m.names, v.Name)
		m.marks = append(m.marks, []byte("[redacted: "+v.Name+"]"))
		for _, f := range formsOf(v.Value) {
			m.needles = append(m.needles, needle{form: f, value: i, isForeign: v.Foreign, repeats: repeatsOf(f.text)})
			if v.Foreign {
				m.heldLine = max(m.heldLine, minHeldLine, int64(len(f.text)))
			}
		}
	}
	m.newTree()
	for i := range m.needles {
		m.add(&m.needles[i])
	}
	return m
}

func (m *Matcher) add(n *needle) {
	for at := range stride {
		h := hash(gramOf(n.text[at:]))
		m.filter[h/64] |= 1 << (h % 64)
		m.offsets[h] |= 1 << at
	}
	if n.isForeign {
		return
	}
	if n.isPlain {
		m.firsts[n.text[0]] = true
	}
	for length := 2; length < window; length++ {
		m.beginnings[beginning(n.text[:length])] = struct{}{}
	}
}

// beginning is the key of up to seven bytes.
func beginning(text []byte) uint64 {
	var b [8]byte
	copy(b[:7], text)
	b[7] = byte(len(text))
	return binary.LittleEndian.Uint64(b[:])
}

// isBeginning reports whether a text of less than eight bytes can become a form.
func (m *Matcher) isBeginning(text []byte) bool {
	if len(text) == 1 {
		return m.firsts[text[0]]
	}
	_, is := m.beginnings[beginning(text)]
	return is
}

func gramOf(text []byte) uint32 { return binary.LittleEndian.Uint32(text) }

func windowOf(text []byte) uint64 { return binary.LittleEndian.Uint64(text) }

func hash(gram uint32) uint32 { return gram * 0x9E3779B1 >> (32 - filterBits) }

// next returns the first index at which a form may begin, of those from one to another; -1 for none. offset is the place of the text in
// the stream.
func (m *Matcher) next(text []byte, from, to int, offset int64) int {
	first := from + int((stride-(offset+int64(from))%stride)%stride)
	for at := first; at-stride+1 < to && at+gram <= len(text); at += stride {
		h := hash(gramOf(text[at:]))
		if m.filter[h/64]>>(h%64)&1 == 0 {
			continue
		}
		offsets := m.offsets[h]
		if at+2+gram <= len(text) {
			// Where the gram is among the first, the one behind the next is in the window, too. Lines of dashes begin as keys do.
			offsets &= m.offsets[hash(gramOf(text[at+2:]))]>>2 | 3<<(stride-2)
		}
		for offsets != 0 {
			// The largest offset is that of the first place.
			offset := bits.Len8(offsets) - 1
			offsets &^= 1 << offset
			start := at - offset
			if start < from || start >= to || start+window > len(text) {
				continue
			}
			if _, is := m.roots[windowOf(text[start:])]; is {
				return start
			}
		}
	}
	return -1
}

// Format prints how many values there are.
func (m Matcher) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "redact.Matcher(%d values)", len(m.names))
}

// Bytes returns a text without the values, and how often each was in it. The text is whole.
func (m *Matcher) Bytes(text []byte) ([]byte, []Count) {
	s := m.NewStream()
	out := s.Flush(s.Append(make([]byte, 0, len(text)), text))
	return out, s.Counts()
}

// Span is a part of a text that a mark with a name stands for.
type Span struct {
	Start, End int
	Name       string
	Mark       []byte
}

// Spans returns what Bytes replaces, in the order of the text.
func (m *Matcher) Spans(text []byte) []Span {
	s := m.NewStream()
	s.listsSpans = true
	s.Flush(s.Append(nil, text))
	return s.spans
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
