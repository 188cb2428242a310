package files

import (
	"bytes"
	"context"
	"io"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// hit is a line that matches, as it is held until it is written. It has the exact bytes.
type hit struct {
	// path is shared by the hits of a file.
	path, line     string
	number, column int64
	cut            bool
	// replaced is what isn't shown of the line.
	replaced map[string]int64
}

// match returns what is written for a hit.
func (h *hit) match() Match {
	m := Match{LineNumber: h.number, Column: h.column, Cut: h.cut}
	m.Path, m.PathBase64 = exact(h.path)
	m.Line, m.LineBase64 = exact(h.line)
	return m
}

// hits are the lines of files that match.
type hits struct {
	found   []hit
	bytes   int64
	skipped Skipped
}

func (h *hits) add(other hits) {
	h.found = append(h.found, other.found...)
	h.bytes += other.bytes
	h.skipped.add(other.skipped)
}

// bounds are how many lines are held, and how many bytes of them: no output takes more.
type bounds struct {
	lines int
	bytes int64
}

func (b *bounds) areReached(h *hits) bool { return len(h.found) >= b.lines || h.bytes > b.bytes }

// searcher looks for lines in one file after the other. It reuses its buffer.
type searcher struct {
	ctx     context.Context
	pattern *pattern
	// bounds are those of one file.
	bounds bounds
	// shown is that of the Rules.
	shown  Shown
	buffer []byte
	// next is where each literal is next in the data that is searched.
	next []int
	// filter is nil if the pattern has no expression.
	filter *lineDFA

	// What follows is of one file.
	path string
	hits hits
	line int64
	// steps is how much was matched since the context was asked.
	steps int
}

const searchBytes = 256 << 10

func newSearcher(ctx context.Context, p *pattern, bounds bounds, shown Shown) *searcher {
	s := &searcher{ctx: ctx, pattern: p, bounds: bounds, shown: shown, buffer: make([]byte, searchBytes), next: make([]int, len(p.literals))}
	if p.filter != nil {
		s.filter = newLineDFA(p.filter, maxStateBytes/grepWorkers())
	}
	return s
}

// file searches an open file up to its size. A file with a NUL byte in what is read of it is binary.
func (s *searcher) file(fd int, path string, size int64) (hits, error) {
	s.path, s.hits, s.line = path, hits{}, 0
	held, skipping := 0, false
	for at := int64(0); at < size && !s.bounds.areReached(&s.hits); {
		n, err := s.read(fd, s.buffer[held:])
		if err != nil {
			return hits{}, err
		}
		at += int64(n)
		end := n == 0 || at >= size
		if bytes.IndexByte(s.buffer[held:held+n], 0) >= 0 {
			return hits{skipped: Skipped{Binary: 1}}, nil
		}
		held, skipping = s.search(held+n, end, skipping)
		if err := s.ctx.Err(); err != nil {
			// What was found last may be wrong.
			return hits{}, err
		}
		if n == 0 {
			break
		}
	}
	return s.hits, nil
}

// read reads on.
func (s *searcher) read(fd int, buffer []byte) (int, error) {
	for {
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := unix.Read(fd, buffer)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// search searches the whole lines in the buffer and keeps the rest of it. A line that fills the buffer is searched as far
// as it goes, and its rest is skipped.
func (s *searcher) search(size int, end, skipping bool) (held int, stillSkipping bool) {
	data := s.buffer[:size]
	if skipping {
		feed := bytes.IndexByte(data, '\n')
		if feed < 0 {
			return 0, true
		}
		data, s.line = data[feed+1:], s.line+1
	}
	whole := len(data)
	if !end {
		whole = bytes.LastIndexByte(data, '\n') + 1
	}
	if whole == 0 && len(data) == len(s.buffer) {
		s.hits.skipped.LongLines++
		s.lines(data, true)
		return 0, true
	}
	s.lines(data[:whole], false)
	return copy(s.buffer, data[whole:]), false
}

// lines finds the lines of data that match. An open line goes on behind data.
func (s *searcher) lines(data []byte, open bool) {
	for i := range s.next {
		s.next[i] = -1
	}
	if s.filter != nil {
		s.filter.addCredit(len(data))
	}
	counted := 0
	for at := 0; at < len(data); {
		candidate := s.candidate(data, at)
		if candidate < 0 {
			break
		}
		start := at + bytes.LastIndexByte(data[at:candidate], '\n') + 1
		stop := len(data)
		if feed := bytes.IndexByte(data[candidate:], '\n'); feed >= 0 {
			stop = candidate + feed
		}
		if column := s.match(data[start:stop], candidate-start); column >= 0 {
			s.line += int64(bytes.Count(data[counted:start], []byte{'\n'}))
			counted = start
			if s.add(data[start:stop], column, open); s.bounds.areReached(&s.hits) {
				return
			}
		}
		if s.hasEnded() {
			return
		}
		at = stop + 1
	}
	s.line += int64(bytes.Count(data[counted:], []byte{'\n'}))
}

// candidate returns where a line that may match goes on or starts; -1 if there is none.
func (s *searcher) candidate(data []byte, from int) int {
	if len(s.pattern.literals) == 0 {
		at := s.filter.find(data[from:])
		if at < 0 {
			return -1
		}
		return from + at
	}
	first := len(data)
	for i := range s.pattern.literals {
		if s.next[i] < from {
			s.next[i] = len(data)
			if at := s.pattern.literals[i].index(data[from:]); at >= 0 {
				s.next[i] = from + at
			}
		}
		first = min(first, s.next[i])
	}
	if first == len(data) {
		return -1
	}
	return first
}

// match returns where in the line the match starts; -1 if there is none. The literal was found at hint.
func (s *searcher) match(line []byte, hint int) int {
	if s.pattern.expr == nil {
		return hint
	}
	if len(s.pattern.literals) > 0 && s.filter.find(line) < 0 {
		return -1
	}
	at := s.find(line)
	if at < 0 {
		// The end of a line can be before "\r\n".
		if before, found := bytes.CutSuffix(line, []byte{'\r'}); found {
			at = s.find(before)
		}
	}
	return at
}

// maxStepsAtOnce bounds what an expression does before the context is asked: instructions times bytes, each some 20 ns at most.
const maxStepsAtOnce = 1 << 22

// find returns where the expression matches first; -1 if it doesn't. Its answer is of no use after the context's end.
func (s *searcher) find(line []byte) int {
	expr, steps := s.pattern.expr, len(line)*s.pattern.size
	s.steps += steps
	if steps > maxStepsAtOnce {
		// Nothing interrupts a match but the end of its input. From a reader it is slower.
		if at := expr.FindReaderIndex(&lineReader{ctx: s.ctx, rest: line}); at != nil {
			return at[0]
		}
		return -1
	}
	if !expr.Match(line) {
		return -1
	}
	return expr.FindIndex(line)[0]
}

// hasEnded says that the context has ended. It asks only after much work.
func (s *searcher) hasEnded() bool {
	if s.steps < maxStepsAtOnce {
		return false
	}
	s.steps = 0
	return s.ctx.Err() != nil
}

// lineReader reads a line up to its end or that of the context.
type lineReader struct {
	ctx  context.Context
	rest []byte
}

func (r *lineReader) ReadRune() (rune, int, error) {
	if len(r.rest) == 0 || r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.rest)
	r.rest = r.rest[size:]
	return c, size, nil
}

// add holds a line, and cuts a long one around its match.
func (s *searcher) add(line []byte, column int, open bool) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	column = min(column, len(line))
	h := hit{path: s.path, number: s.line + 1, column: int64(column) + 1, cut: open}
	if s.shown != nil {
		// The whole line, before a part of a value could be cut from it. The match stays in sight.
		before, _ := s.shown(line[:column])
		line, h.replaced = s.shown(line)
		column = min(len(before), len(line))
	}
	if len(line) > MaxLineBytes {
		start := min(max(column-MaxLineBytes/4, 0), len(line)-MaxLineBytes)
		line, h.cut = cutRunes(line[start:start+MaxLineBytes], start > 0), true
	}
	h.line = string(line)
	s.hits.found = append(s.hits.found, h)
	s.hits.bytes += int64(len(h.path) + len(h.line))
}

// cutRunes removes what the cut left of characters at both ends.
func cutRunes(line []byte, atStart bool) []byte {
	for i := 0; atStart && i < utf8.UTFMax-1 && len(line) > 0 && !utf8.RuneStart(line[0]); i++ {
		line = line[1:]
	}
	for i := 1; i < utf8.UTFMax && i <= len(line); i++ {
		if tail := line[len(line)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				line = line[:len(line)-i]
			}
			break
		}
	}
	return line
}
