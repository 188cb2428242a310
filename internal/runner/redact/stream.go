package redact

import (
	"bytes"
	"fmt"
)

// Stream replaces the values in one text that comes in writes. It is for one goroutine.
type Stream struct {
	matcher *Matcher
	// text is what isn't decided or written, and base its place in the stream. Each place before at is known to begin a form or not; what
	// is before written has been returned.
	text              []byte
	base, at, written int64
	// open is a form that was found, joined with all that overlap it; more may do so. Its end is 0 when there is none.
	open span
	// memos has one for each node that a window leads to.
	memos map[int32]memo
	// lineEnd is the place behind the last end of a line, for foreign values.
	lineEnd int64
	counts  []int64
	// spans are listed for Spans alone.
	spans      []Span
	listsSpans bool
	// work counts the bytes that were compared with forms, moved and searched for the end of a line.
	work int64
}

// span is a part of the text that a form takes.
type span struct {
	start, end int64
	needle     *needle
}

// memo is how far the text from start on goes as a form does. Of the places with the same window, it is the one that goes furthest.
type memo struct {
	start int64
	place
}

// Format prints nothing of the text.
func (s Stream) Format(f fmt.State, _ rune) { fmt.Fprint(f, "redact.Stream") }

// NewStream begins a text.
func (m *Matcher) NewStream() *Stream {
	return &Stream{matcher: m, memos: map[int32]memo{}, counts: make([]int64, len(m.names))}
}

// Append takes the next part of the text, and appends to out what is decided.
func (s *Stream) Append(out, text []byte) []byte {
	if len(s.matcher.needles) == 0 {
		return append(out, text...)
	}
	s.text = append(s.text, text...)
	if s.matcher.heldLine > 0 {
		s.work += int64(len(text))
		if i := bytes.LastIndexAny(text, "\r\n"); i >= 0 {
			s.lineEnd = s.base + int64(len(s.text)-len(text)+i+1)
		}
	}
	return s.decide(out, false)
}

// Flush ends the text, and appends to out what was held back.
func (s *Stream) Flush(out []byte) []byte { return s.decide(out, true) }

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

func (s *Stream) decide(out []byte, isLast bool) []byte {
	end := s.base + int64(len(s.text))
	limit := end
	if s.matcher.heldLine > 0 && !isLast {
		limit = max(s.lineEnd, end-s.matcher.heldLine)
	}
	for {
		next := s.matcher.next(s.text, int(s.at-s.base), int(limit-s.base), s.base)
		if next < 0 {
			break
		}
		s.at = s.base + int64(next)
		rest := s.text[next:]
		p := s.locate(rest)
		if !isLast && p.length == len(rest) && s.matcher.goesOn(p) {
			return s.write(out, min(s.at, limit))
		}
		if n := s.matcher.whole(p); n != nil {
			out = s.found(out, span{s.at, s.at + int64(len(n.text)), n})
		}
		s.at++
	}
	hold := limit
	if !isLast {
		// What is shorter than a window isn't decided, and held back only where it can become a form.
		s.at = max(s.at, min(limit, end-window+1))
		for at := s.at; at < limit; at++ {
			if rest := s.text[at-s.base:]; len(rest) < window && s.matcher.isBeginning(rest) {
				hold = at
				break
			}
		}
	} else {
		s.at = end
	}
	return s.write(out, hold)
}

// locate returns how far the text from s.at on goes as a form does. A form begins with the window there.
func (s *Stream) locate(rest []byte) place {
	m, root := s.matcher, s.matcher.roots[windowOf(rest)]
	last, is := s.memos[root]
	p := place{node: root}
	if distance := s.at - last.start; is && distance < int64(last.length) {
		if length := m.repeated(last.place, int(distance)); length >= window {
			p = m.above(last.place, length)
		}
	}
	p, work := m.walk(p, rest)
	s.work += int64(work)
	// Where a form doesn't begin within itself, only a place that more text can follow is looked at again.
	if (p.length == len(rest) || m.first(p).repeats != nil) && s.at+int64(p.length) >= last.start+int64(last.length) {
		s.memos[root] = memo{s.at, p}
	}
	return p
}

// found joins a form with the one before, or begins a mark.
func (s *Stream) found(out []byte, one span) []byte {
	if s.open.end <= one.start {
		out = s.close(out)
		s.open = one
		return out
	}
	s.open.end = max(s.open.end, one.end)
	if one.needle.size > s.open.needle.size {
		s.open.needle = one.needle
	}
	return out
}

// close writes what was found.
func (s *Stream) close(out []byte) []byte {
	if s.open.end == 0 {
		return out
	}
	out = s.copy(out, s.open.start)
	out = append(out, s.matcher.marks[s.open.needle.value]...)
	value := s.open.needle.value
	s.counts[value]++
	if s.listsSpans {
		s.spans = append(s.spans, Span{int(s.open.start), int(s.open.end), s.matcher.names[value], s.matcher.marks[value]})
	}
	s.written = max(s.written, s.open.end)
	s.open = span{}
	return out
}

// write appends the text up to a place, which nothing can begin before, and lets go of it.
func (s *Stream) write(out []byte, to int64) []byte {
	if s.open.end > 0 && s.open.end <= to {
		out = s.close(out)
	}
	if s.open.end > 0 {
		// Its mark stands for all that is taken by now.
		out = s.copy(out, s.open.start)
		s.written = max(s.written, min(s.open.end, s.at))
	} else {
		out = s.copy(out, to)
	}
	// What is left is moved only when there is less of it than of what goes.
	if done := min(s.at, s.written) - s.base; done > int64(len(s.text))/2 {
		s.text = s.text[:copy(s.text, s.text[done:])]
		s.base += done
		s.work += int64(len(s.text))
	}
	return out
}

func (s *Stream) copy(out []byte, to int64) []byte {
	if to > s.written {
		out = append(out, s.text[s.written-s.base:to-s.base]...)
		s.written = to
	}
	return out
}
