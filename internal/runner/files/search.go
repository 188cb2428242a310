package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// hits are the lines of one file that match.
type hits struct {
	matches []Match
	skipped Skipped
}

// searcher looks for lines in one file after the other. It reuses its buffer.
type searcher struct {
	ctx     context.Context
	pattern *pattern
	// limit is how many lines of one file are returned.
	limit  int
	buffer []byte
	// next is where each literal is next in the data that is searched.
	next []int

	// What follows is of one file.
	found []Match
	line  int64
	long  int
	// steps is how much was matched since the context was asked.
	steps int
}

const searchBytes = 256 << 10

func newSearcher(ctx context.Context, p *pattern, limit int) *searcher {
	return &searcher{ctx: ctx, pattern: p, limit: limit, buffer: make([]byte, searchBytes), next: make([]int, len(p.literals))}
}

// file searches an open file up to its size. A file with a NUL byte in what is read of it is binary.
func (s *searcher) file(fd int, size int64) (hits, error) {
	s.found, s.line, s.long = nil, 0, 0
	held, skipping := 0, false
	for at := int64(0); at < size && len(s.found) < s.limit; {
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
	return hits{matches: s.found, skipped: Skipped{LongLines: s.long}}, nil
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
		s.long++
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
			s.found = append(s.found, newMatch(data[start:stop], s.line+1, column, open))
			if len(s.found) == s.limit {
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
		return from
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

// newMatch returns the match in a line, and cuts a long line around it.
func newMatch(line []byte, number int64, column int, open bool) Match {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	column = min(column, len(line))
	m := Match{LineNumber: number, Column: int64(column) + 1, Cut: open}
	if len(line) > MaxLineBytes {
		start := min(max(column-MaxLineBytes/4, 0), len(line)-MaxLineBytes)
		line, m.Cut = cutRunes(line[start:start+MaxLineBytes], start > 0), true
	}
	m.Line = string(line)
	if !utf8.Valid(line) {
		m.Line, m.LineBase64 = string([]rune(m.Line)), base64.StdEncoding.EncodeToString(line)
	}
	return m
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
