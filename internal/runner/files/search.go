package files

import (
	"bytes"
	"context"
	"io"
	"unicode/utf8"

	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// hit is a line that matches, as it is held until it is written, and the names of what isn't shown of it.
type hit struct {
	Match
	hidden []string
}

// hits are the lines of files that match.
type hits struct {
	found   []hit
	bytes   int64
	skipped Skipped
}

// searcher looks for lines in one file after the other. It reuses its buffer.
type searcher struct {
	*call
	pattern *patterns.Pattern
	buffer  []byte
	// next is where each literal is next in the data that is searched.
	next []int
	// lower is the data in lower case, for texts in any case.
	lower []byte

	devices sys.Devices

	// What follows is of one file. data is what is there of it, from at on, and template a match with its path.
	fd       int
	template Match
	hits     hits
	line     int64
	data     []byte
	at       int64
	// waiting are lines of data that were found, and aren't shown yet.
	waiting []lineMatch
}

const searchBytes = 256 << 10

func (c *call) newSearcher(p *patterns.Pattern) *searcher {
	return &searcher{call: c, pattern: p, buffer: make([]byte, searchBytes), next: make([]int, len(p.Literals))}
}

// isFull says that a line more than is written is held of a file, which shows that there are more, or more than the output takes.
func (s *searcher) isFull() bool {
	return len(s.hits.found) > maxResults(s.req) || s.hits.bytes > s.rules.MaxOutputBytes
}

// file searches an open file up to its size. A file with a NUL byte in what is read of it is binary.
func (s *searcher) file(fd int, path string, size int64) (hits, error) {
	s.fd, s.hits, s.line, s.waiting = fd, hits{}, 0, s.waiting[:0]
	s.template.Path, s.template.PathBase64 = exact(path)
	held, skipping := 0, false
	for at := int64(0); at < size && !s.isFull(); {
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
		if column := s.match(data[start:stop]); column >= 0 {
			s.line += int64(bytes.Count(data[counted:start], []byte{'\n'}))
			counted = start
			line := bytes.TrimSuffix(data[start:stop], []byte{'\r'})
			s.waiting = append(s.waiting, lineMatch{start, start + len(line), min(column, len(line)), s.line + 1, open})
		}
		if len(s.hits.found)+len(s.waiting) > maxResults(s.req) || s.ctx.Err() != nil {
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

// match returns where in the line the match starts; -1 if there is none.
func (s *searcher) match(line []byte) int {
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
	expr := s.pattern.Expr
	var at []int
	if len(line)*s.pattern.Size > maxStepsAtOnce {
		// Nothing interrupts a match but the end of its input. From a reader it is slower.
		at = expr.FindReaderIndex(&lineReader{ctx: s.ctx, rest: line})
	} else if expr.Match(line) {
		at = expr.FindIndex(line)
	}
	if at == nil {
		return -1
	}
	return at[0]
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
	near := 2 * (s.rules.HiddenAround + s.contextBytes())
	for rest := s.waiting; len(rest) > 0; {
		n := 1
		for n < len(rest) && int64(rest[n].start-rest[n-1].stop) <= near {
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
	w, err := s.rules.window(s.ctx, s.fd, s.at+int64(start), s.data[start:stop], s.contextBytes())
	if err != nil {
		return err
	}
	for _, m := range lines {
		if s.isFull() || s.ctx.Err() != nil {
			break
		}
		s.hold(m, &w, m.start-start)
	}
	return nil
}

// hold holds what is shown of a line in a window, and cuts a long one around its match.
func (s *searcher) hold(m lineMatch, w *window, at int) {
	h := hit{Match: s.template}
	h.LineNumber, h.Column, h.Cut = m.number, int64(m.column)+1, m.cut
	shown, hidden := w.show(at, at+m.stop-m.start)
	if len(shown) > MaxLineBytes {
		before, _ := w.show(at, at+m.column)
		start := min(max(min(len(before), len(shown))-MaxLineBytes/4, 0), len(shown)-MaxLineBytes)
		shown, h.Cut = cutRunes(shown[start:start+MaxLineBytes], start > 0), true
	}
	h.Line, h.LineBase64 = exact(string(shown))
	h.hidden = hidden
	if s.req.ContextLines > 0 {
		s.addContext(&h, m, w, at)
	}
	s.hits.found = append(s.hits.found, h)
	s.hits.bytes += int64(len(h.Path) + len(h.Line))
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
