package redact

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

const (
	// maxBlock bounds how much of a text is in memory beside what is held back.
	maxBlock = 32 << 10
	// maxLine bounds how much of a line is held back for foreign values.
	maxLine = 64 << 10
)

// Stream redacts a text that comes in pieces. It isn't safe for concurrent use.
type Stream struct {
	matcher *Matcher
	source  *layer
	// lineStart is where the last line begins, for foreign values: nothing that is known of them but whole occurrences may
	// change what is written and when.
	lineStart int64
	// spans are the occurrences from written on, in order and apart if isJoined. written is how far the text is written, or
	// replaced.
	spans    []span
	isJoined bool
	written  int64
	counts   []int64
	// isExact holds back whatever may begin an occurrence, also by a few bits. Tests use it.
	isExact bool
}

// span is an occurrence in the source, or several that overlap. form is the one that names it, which begins at named.
type span struct {
	start, end, named int64
	form              form
}

// NewStream returns a Stream at the beginning of a text.
func (m *Matcher) NewStream() *Stream {
	s := &Stream{matcher: m, isJoined: true, counts: make([]int64, len(m.names))}
	s.source = newSource(s, m.known)
	return s
}

// Format prints nothing of the text.
func (s *Stream) Format(f fmt.State, _ rune) { fmt.Fprint(f, "redact.Stream") }

// Append takes a piece of text, and appends to out what is certain now.
func (s *Stream) Append(out, text []byte) []byte {
	switch {
	case s.matcher.hasForeign:
		return s.appendLines(out, text)
	case s.matcher.known.isEmpty():
		return append(out, text...)
	}
	for len(text) > 0 {
		n := min(len(text), maxBlock)
		out = s.write(out, s.source.take(text[:n]))
		s.source.trim()
		text = text[n:]
	}
	return out
}

// appendLines is Append with foreign values. All of the text is read before any of it is written, so that an occurrence of
// several lines is found where all of it is there.
func (s *Stream) appendLines(out, text []byte) []byte {
	held := s.source.end()
	if len(text) == 0 {
		return out
	}
	if n := afterLastLine(text); n > 0 {
		s.lineStart = held + int64(n)
	}
	for len(text) > 0 {
		n := min(len(text), maxBlock)
		held = s.source.take(text[:n])
		s.source.trim()
		text = text[n:]
	}
	out = s.write(out, min(held, max(s.lineStart, s.source.end()-maxLine)))
	s.source.trim()
	return out
}

// afterLastLine returns the index of what follows the last line end; 0 if there is none.
func afterLastLine(text []byte) int {
	n := bytes.LastIndexByte(text, '\n') + 1
	return n + bytes.LastIndexByte(text[n:], '\r') + 1
}

// take adds a piece to the text of a source, and reads it. It returns from where on the text is held back.
func (l *layer) take(text []byte) (held int64) {
	l.text = append(l.text, text...)
	return l.advance(false).held
}

// Flush ends the text, and appends to out what was held back. The next piece begins a new text.
func (s *Stream) Flush(out []byte) []byte {
	end := s.source.end()
	s.source.advance(true)
	out = s.write(out, end)
	s.source.trim()
	s.source.restart()
	s.lineStart = end
	return out
}

// Pending is how many bytes are held back.
func (s *Stream) Pending() int { return int(s.source.end() - s.written) }

// Counts returns the names that were found, in the order of the values.
func (s *Stream) Counts() []Count {
	var list []Count
	for i, n := range s.counts {
		if n > 0 {
			list = append(list, Count{Name: s.matcher.names[i], Count: n})
		}
	}
	return list
}

// found adds an occurrence. Those of one lane come in order, and overlap often.
func (s *Stream) found(one span) {
	if len(s.spans) > 0 {
		last := &s.spans[len(s.spans)-1]
		s.isJoined = s.isJoined && one.start >= last.start
		if last.overlaps(one) {
			s.merge(last, one)
			return
		}
	}
	s.spans = append(s.spans, one)
}

func (a span) overlaps(b span) bool { return a.start < b.end && b.start < a.end }

func (s *Stream) merge(into *span, one span) {
	order := cmp.Or(
		cmp.Compare(one.form.length, into.form.length),
		cmp.Compare(into.named, one.named),
		cmp.Compare(into.form.order, one.form.order))
	if order > 0 {
		into.form, into.named = one.form, one.named
	}
	into.start, into.end = min(into.start, one.start), max(into.end, one.end)
}

// write appends the text before a position to out. Only what is found from now on may overlap it that wasn't held back:
// then the rest of that is replaced.
func (s *Stream) write(out []byte, to int64) []byte {
	s.join()
	done := 0
	for _, one := range s.spans {
		if one.start >= to {
			break
		}
		if one.end <= s.written {
			// Another layer has found it again.
			done++
			continue
		}
		out = s.copy(out, one.start)
		s.written = max(s.written, min(one.end, to))
		if one.end > to {
			// More may overlap it.
			break
		}
		out = append(out, s.matcher.marks[one.form.value]...)
		s.counts[one.form.value]++
		done++
	}
	if done > 0 {
		s.spans = s.spans[:copy(s.spans, s.spans[done:])]
	}
	return s.copy(out, to)
}

// copy appends the text up to a position.
func (s *Stream) copy(out []byte, to int64) []byte {
	if to > s.written {
		base := s.source.base
		out = append(out, s.source.text[s.written-base:to-base]...)
		s.written = to
	}
	return out
}

// join makes one of all spans that overlap.
func (s *Stream) join() {
	if s.isJoined {
		return
	}
	s.isJoined = true
	slices.SortFunc(s.spans, func(a, b span) int { return int(a.start - b.start) })
	n := 0
	for _, one := range s.spans[1:] {
		if s.spans[n].overlaps(one) {
			s.merge(&s.spans[n], one)
			continue
		}
		n++
		s.spans[n] = one
	}
	s.spans = s.spans[:n+1]
}
