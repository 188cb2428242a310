package files

import (
	"bytes"
	"context"
	"io"
	"unicode/utf8"

	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// hit is a line that matches, as it is held until it is written. It has the exact bytes.
type hit struct {
	// path is shared by the hits of a file.
	path, line     string
	number, column int64
	cut            bool
	// before and after are the lines around it.
	before, after []string
	// hidden are the names of what isn't shown of them.
	hidden []string
}

// match returns what is written for a hit.
func (h *hit) match() Match {
	m := Match{LineNumber: h.number, Column: h.column, Cut: h.cut, Before: h.before, After: h.after}
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
	pattern *patterns.Pattern
	// bounds are those of one file.
	bounds bounds
	rules  *compiledRules
	// around is how many lines before and after a match are held with it.
	around int
	buffer []byte
	// next is where each literal is next in the data that is searched.
	next []int
	// lower is the data in lower case, for texts in any case.
	lower []byte

	// What follows is of one file. data is what is there of it, from at on.
	fd   int
	path string
	hits hits
	line int64
	data []byte
	at   int64
	// waiting are lines of data that were found, and aren't shown yet.
	waiting []lineMatch
	// steps is how much was matched since the context was asked.
	steps int
}

const searchBytes = 256 << 10

// newSearcher returns one that holds a line more than is written: it shows that there are more.
func (c *call) newSearcher(p *patterns.Pattern) *searcher {
	return &searcher{
		ctx: c.ctx, pattern: p, bounds: bounds{maxResults(c.req) + 1, c.rules.MaxOutputBytes}, rules: c.rules, around: c.req.ContextLines,
		buffer: make([]byte, searchBytes), next: make([]int, len(p.Literals)),
	}
}

// file searches an open file up to its size. A file with a NUL byte in what is read of it is binary.
func (s *searcher) file(fd int, path string, size int64) (hits, error) {
	s.fd, s.path, s.hits, s.line, s.waiting = fd, path, hits{}, 0, s.waiting[:0]
	held, skipping := 0, false
	for at := int64(0); at < size && !s.bounds.areReached(&s.hits); {
		n, err := sys.ReadAt(s.ctx, fd, s.buffer[held:], at)
		if err != nil {
			return hits{}, err
		}
		at += int64(n)
		end := n == 0 || at >= size
		if bytes.IndexByte(s.buffer[held:held+n], 0) >= 0 {
			return hits{skipped: Skipped{Binary: 1}}, nil
		}
		s.data, s.at = s.buffer[:held+n], at-int64(held+n)
		if held, skipping, err = s.search(end, skipping); err != nil {
			return hits{}, err
		}
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

// search searches the whole lines in the data and keeps the rest of it. A line that fills the buffer is searched as far as it
// goes, and its rest is skipped.
func (s *searcher) search(end, skipping bool) (held int, stillSkipping bool, err error) {
	if skipping {
		feed := bytes.IndexByte(s.data, '\n')
		if feed < 0 {
			return 0, true, nil
		}
		s.data, s.at, s.line = s.data[feed+1:], s.at+int64(feed)+1, s.line+1
	}
	whole := len(s.data)
	if !end {
		whole = bytes.LastIndexByte(s.data, '\n') + 1
	}
	if whole == 0 && len(s.data) == len(s.buffer) {
		s.hits.skipped.LongLines++
		return 0, true, s.lines(len(s.data), true)
	}
	if err := s.lines(whole, false); err != nil {
		return 0, false, err
	}
	return copy(s.buffer, s.data[whole:]), false, nil
}

// lines finds the lines in the first bytes of the data that match. An open line goes on behind them.
func (s *searcher) lines(size int, open bool) error {
	data := s.data[:size]
	s.lower = s.lower[:0]
	for i := range s.next {
		s.next[i] = -1
	}
	counted, at := 0, 0
	if s.at == 0 && bytes.HasPrefix(data, []byte(byteOrderMark)) {
		// It isn't part of the first line.
		at = len(byteOrderMark)
	}
	for at < len(data) {
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
			line := bytes.TrimSuffix(data[start:stop], []byte{'\r'})
			s.waiting = append(s.waiting, lineMatch{start, start + len(line), min(column, len(line)), s.line + 1, open})
		}
		if len(s.hits.found)+len(s.waiting) >= s.bounds.lines || s.hasEnded() {
			break
		}
		at = stop + 1
	}
	s.line += int64(bytes.Count(data[counted:], []byte{'\n'}))
	return s.holdWaiting()
}

// candidate returns where a line that may match goes on or starts; -1 if there is none.
func (s *searcher) candidate(data []byte, from int) int {
	if len(s.pattern.Literals) == 0 {
		return from
	}
	first := len(data)
	for i, l := range s.pattern.Literals {
		if s.next[i] < from {
			in := data
			if l.Fold {
				in = s.lowered(data)
			}
			s.next[i] = len(data)
			if at := bytes.Index(in[from:], l.Text); at >= 0 {
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

// lowered returns the data in lower case, as far as it is ASCII.
func (s *searcher) lowered(data []byte) []byte {
	if len(s.lower) == 0 {
		s.lower = append(s.lower, data...)
		for i, c := range s.lower {
			if 'A' <= c && c <= 'Z' {
				s.lower[i] = c + 'a' - 'A'
			}
		}
	}
	return s.lower
}

// match returns where in the line the match starts; -1 if there is none. The literal was found at hint.
func (s *searcher) match(line []byte, hint int) int {
	if s.pattern.Expr == nil {
		return hint
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
	expr, steps := s.pattern.Expr, len(line)*s.pattern.Size
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

// lineMatch is a line of the data that matches.
type lineMatch struct {
	start, stop, column int
	number              int64
	cut                 bool
}

// holdWaiting holds what is shown of the lines that wait. Lines that are near each other are looked at together.
func (s *searcher) holdWaiting() error {
	for rest := s.waiting; len(rest) > 0; {
		n := 1
		for n < len(rest) && int64(rest[n].start-rest[n-1].stop) <= 2*s.rules.HiddenAround {
			n++
		}
		if err := s.holdTogether(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	s.waiting = s.waiting[:0]
	return nil
}

func (s *searcher) holdTogether(lines []lineMatch) error {
	if s.rules.Hidden != nil {
		s.rules.showing.Lock()
		defer s.rules.showing.Unlock()
	}
	start, stop := lines[0].start, lines[len(lines)-1].stop
	w, err := s.rules.window(s.ctx, s.fd, s.at+int64(start), s.data[start:stop])
	if err != nil {
		return err
	}
	for _, m := range lines {
		if s.bounds.areReached(&s.hits) || s.ctx.Err() != nil {
			break
		}
		s.hold(m, &w, m.start-start)
	}
	return nil
}

// hold holds what is shown of a line in a window, and cuts a long one around its match.
func (s *searcher) hold(m lineMatch, w *window, at int) {
	h := hit{path: s.path, number: m.number, column: int64(m.column) + 1, cut: m.cut}
	shown, hidden := w.show(at, at+m.stop-m.start)
	if len(shown) > MaxLineBytes {
		before, _ := w.show(at, at+m.column)
		start := min(max(min(len(before), len(shown))-MaxLineBytes/4, 0), len(shown)-MaxLineBytes)
		shown, h.cut = cutRunes(shown[start:start+MaxLineBytes], start > 0), true
	}
	h.line, h.hidden = string(shown), hidden
	if s.around > 0 {
		s.addContext(&h, m)
	}
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
