package redact

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// node is where forms that begin alike part, or where one of them ends.
type node struct {
	// end is how many bytes lead to it. The needles from first to last begin with them.
	end, first, last int32
	// whole is the longest needle that ends there or before, parent the node before; -1 for none.
	whole, parent int32
	// children are the nodes that follow it, from child to lastChild, in the order of their bytes.
	child, lastChild int32
	// isOwn says that a form which isn't foreign is longer than what leads to the parent.
	isOwn bool
}

// place is how far a text goes as a form does: so many bytes, to a node or into what leads to it.
type place struct {
	node   int32
	length int
}

// newTree has the needles in order, and makes the nodes: first those that a window leads to, then the children of each.
func (m *Matcher) newTree() {
	slices.SortStableFunc(m.needles, func(a, b needle) int { return bytes.Compare(a.text, b.text) })
	m.grow(-1, 0, int32(len(m.needles)), window)
	m.roots = make(map[uint64]int32, len(m.nodes))
	for i := range m.nodes {
		m.roots[windowOf(m.needles[m.nodes[i].first].text)] = int32(i)
	}
	for i := int32(0); int(i) < len(m.nodes); i++ {
		n := &m.nodes[i]
		longer := n.first
		n.end = int32(matching(m.needles[n.first].text, m.needles[n.last-1].text))
		for longer < n.last && len(m.needles[longer].text) == int(n.end) {
			n.whole = n.first
			longer++
		}
		n.child = int32(len(m.nodes))
		lastChild := m.grow(i, longer, n.last, int(n.end)+1)
		m.nodes[i].lastChild = lastChild
	}
}

// grow adds children to a node: one for each beginning of a length, of the needles from one to another. It returns where they end.
func (m *Matcher) grow(parent, from, to int32, length int) int32 {
	whole := int32(-1)
	if parent >= 0 {
		whole = m.nodes[parent].whole
	}
	for first := from; first < to; {
		last, isOwn := first, false
		for last < to && bytes.Equal(m.needles[last].text[:length], m.needles[first].text[:length]) {
			isOwn = isOwn || !m.needles[last].isForeign
			last++
		}
		m.nodes = append(m.nodes, node{first: first, last: last, whole: whole, parent: parent, isOwn: isOwn})
		first = last
	}
	return int32(len(m.nodes))
}

// walk goes on from a place as far as the text does. work is how many bytes it compared, and how many nodes it saw.
func (m *Matcher) walk(p place, text []byte) (furthest place, work int) {
	from := p.length
	for {
		work++
		n := &m.nodes[p.node]
		p.length += matching(text[p.length:], m.needles[n.first].text[p.length:n.end])
		if p.length < int(n.end) || p.length == len(text) {
			return p, work + p.length - from
		}
		i, is := slices.BinarySearchFunc(m.nodes[n.child:n.lastChild], text[p.length], func(child node, c byte) int {
			return int(m.needles[child.first].text[n.end]) - int(c)
		})
		if !is {
			return p, work + p.length - from
		}
		p.node = n.child + int32(i)
	}
}

// first is the first needle that begins as a place does.
func (m *Matcher) first(p place) *needle { return &m.needles[m.nodes[p.node].first] }

// repeated is how much of its beginning a place has again after a distance, as far as its form says so.
func (m *Matcher) repeated(p place, distance int) int {
	repeats := m.first(p).repeats
	switch {
	case distance == 0:
		return p.length
	case repeats == nil:
		return 0
	}
	return min(p.length-distance, int(repeats[distance]))
}

// above is the place of fewer bytes on the way to one.
func (m *Matcher) above(p place, length int) place {
	for parent := m.nodes[p.node].parent; parent >= 0 && int(m.nodes[parent].end) >= length; parent = m.nodes[p.node].parent {
		p.node = parent
	}
	return place{p.node, length}
}

// whole is the longest needle that ends at a place or before, nil for none.
func (m *Matcher) whole(p place) *needle {
	n := &m.nodes[p.node]
	if p.length < int(n.end) && n.parent >= 0 {
		n = &m.nodes[n.parent]
	}
	if n.whole < 0 || len(m.needles[n.whole].text) > p.length {
		return nil
	}
	return &m.needles[n.whole]
}

// goesOn reports whether a form that isn't foreign is longer than a place.
func (m *Matcher) goesOn(p place) bool {
	n := &m.nodes[p.node]
	if p.length < int(n.end) {
		return n.isOwn
	}
	return slices.ContainsFunc(m.nodes[n.child:n.lastChild], func(child node) bool { return child.isOwn })
}

// repeatsOf is where a text begins within itself: the function Z, for needle.repeats.
func repeatsOf(text []byte) []int32 {
	repeats := make([]int32, len(text))
	longest := int32(0)
	// The text from start to end is as at its beginning.
	for i, start, end := 1, 0, 0; i < len(text); i++ {
		n := 0
		if i < end {
			n = min(end-i, int(repeats[i-start]))
		}
		if i+n >= end {
			n += matching(text[i+n:], text[n:])
			start, end = i, i+n
		}
		repeats[i] = int32(n)
		longest = max(longest, int32(n))
	}
	if longest < window {
		return nil
	}
	return repeats
}

// matching is how many bytes two texts have in common.
func matching(a, b []byte) (n int) {
	for ; n+8 <= len(a) && n+8 <= len(b); n += 8 {
		if binary.LittleEndian.Uint64(a[n:]) != binary.LittleEndian.Uint64(b[n:]) {
			break
		}
	}
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
