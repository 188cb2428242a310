package redact

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// maxLine is how much of a line a stream with foreign values holds back.
const maxLine = 64 << 10

// Stream replaces the values in one text that comes in writes. It is for one goroutine.
type Stream struct {
	matcher *Matcher
	// text is what isn't decided or written, and base its place in the stream. Each place before at is known to begin a form or not; what
	// is before written has been returned.
	text              []byte
	base, at, written int64
	// open is a form that was found, joined with all that overlap it; more may do so. Its end is 0 when there is none.
	open span
	// candidate is the form that may begin at at and isn't whole yet, -1 for none; compared is how much of it is there. Longer ones that
	// begin like it don't begin there.
	candidate int32
	compared  int
	memos     map[int32]memo
	// lineEnd is the place behind the last end of a line, for foreign values.
	lineEnd int64
	counts  []int64
	// work counts the bytes that were compared with forms, moved and searched for the end of a line.
	work int64
}

// span is a part of the text that a form takes.
type span struct {
	start, end int64
	needle     *needle
}

// memo is what the last comparison of a form has shown: how much of it the text has from start on. Where it can begin within that, its
// own borders say.
type memo struct {
	start  int64
	length int32
}

// Format prints nothing of the text.
func (s Stream) Format(f fmt.State, _ rune) { fmt.Fprint(f, "redact.Stream") }

// NewStream begins a text.
func (m *Matcher) NewStream() *Stream {
	return &Stream{matcher: m, candidate: -1, memos: map[int32]memo{}, counts: make([]int64, len(m.names))}
}

// Append takes the next part of the text, and appends to out what is decided.
func (s *Stream) Append(out, text []byte) []byte {
	if len(s.matcher.needles) == 0 {
		return append(out, text...)
	}
	s.text = append(s.text, text...)
	if s.matcher.hasForeign {
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
	if s.matcher.hasForeign && !isLast {
		limit = max(s.base, s.lineEnd, end-maxLine)
	}
	for {
		next := s.matcher.next(s.text, int(s.at-s.base), int(limit-s.base), s.base)
		if next < 0 {
			break
		}
		if at := s.base + int64(next); at != s.at {
			s.at, s.candidate = at, -1
		}
		if s.mayGoOn(isLast) {
			return s.write(out, min(s.at, limit))
		}
		out = s.look(out)
		s.at++
		s.candidate = -1
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

// mayGoOn reports whether a form may begin at s.at whose end isn't there yet. Of foreign ones that doesn't count.
func (s *Stream) mayGoOn(isLast bool) bool {
	rest := s.text[s.at-s.base:]
	first := s.matcher.table.find(windowOf(rest))
	for i := max(first, s.candidate); !isLast && s.begins(i, first); i++ {
		n := &s.matcher.needles[i]
		if len(n.text) <= len(rest) {
			// So are all that follow.
			return false
		}
		known, isRefuted := s.known(i)
		if n.isForeign || isRefuted {
			continue
		}
		if i == s.candidate {
			known = max(known, s.compared)
		}
		if equal := s.compare(i, rest, min(known, len(rest))); equal == len(rest) {
			s.candidate, s.compared = i, equal
			return true
		}
	}
	return false
}

// begins reports whether a needle is one of those that begin as another.
func (s *Stream) begins(i, first int32) bool {
	m := s.matcher
	return int(i) < len(m.needles) && (i == first || bytes.Equal(m.needles[i].text[:window], m.needles[first].text[:window]))
}

// look takes the longest form that begins at s.at.
func (s *Stream) look(out []byte) []byte {
	rest := s.text[s.at-s.base:]
	first := s.matcher.table.find(windowOf(rest))
	for i := first; s.begins(i, first); i++ {
		n := &s.matcher.needles[i]
		known, isRefuted := s.known(i)
		if len(n.text) > len(rest) || isRefuted {
			continue
		}
		if s.compare(i, rest, known) < len(n.text) {
			continue
		}
		end := s.at + int64(len(n.text))
		return s.found(out, span{s.at, end, n})
	}
	return out
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
	s.counts[s.open.needle.value]++
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
	// Half of the text at least goes at once: else small writes would move what is held back again and again.
	if done := min(s.at, s.written) - s.base; done > 0 && 2*done >= int64(len(s.text)) {
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

// known is how much of a form is at s.at, as far as that follows from where it was compared before. isRefuted says that it can't begin
// there.
func (s *Stream) known(i int32) (length int, isRefuted bool) {
	n := &s.matcher.needles[i]
	if n.borders == nil {
		return 0, false
	}
	m, is := s.memos[i]
	distance := s.at - m.start
	switch {
	case is && distance == 0:
		return int(m.length), false
	case !is || distance < 0 || distance >= int64(m.length):
		return 0, false
	}
	border := n.borders[m.length]
	switch period := int64(m.length - border); {
	case distance < period:
		return 0, true
	case distance == period:
		return int(border), false
	default:
		return 0, false
	}
}

// compare is how much of a form is at s.at, where some of that is known.
func (s *Stream) compare(i int32, rest []byte, known int) int {
	n := &s.matcher.needles[i]
	equal := known + matching(rest[known:], n.text[known:])
	s.work += int64(equal - known + 1)
	if n.borders != nil {
		s.memos[i] = memo{s.at, int32(equal)}
	}
	return equal
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
