package files

import (
	"bytes"
	"maps"
	"slices"
)

// maxContextBytes is how far before and after a match its context is looked for.
const maxContextBytes = 32 << 10

// addContext adds the lines around a match to it, as they are shown. What can't be read of them is left out.
func (s *searcher) addContext(h *hit, m lineMatch) {
	start, stop := s.at+int64(m.start), s.at+int64(m.stop)
	low := max(start-maxContextBytes, 0)
	text, err := readSpan(s.ctx, s.fd, span{low, stop + maxContextBytes})
	if err != nil || low+int64(len(text)) < stop {
		return
	}
	before := linesBefore(text, int(start-low), s.around, low == 0)
	after := linesAfter(text, int(stop-low), s.around, low+int64(len(text)) < stop+maxContextBytes)
	all := slices.Concat(before, after)
	if len(all) == 0 {
		return
	}
	shown, replaced := s.showContext(text, low, all)
	h.before, h.after = shown[:len(before)], shown[len(before):]
	h.replaced = maps.Clone(h.replaced)
	for name, count := range replaced {
		if h.replaced == nil {
			h.replaced = map[string]int64{}
		}
		h.replaced[name] += count
	}
	for _, line := range shown {
		s.hits.bytes += int64(len(line))
	}
}

// linesBefore returns where the lines before a line are in a text, which may begin inside of a line unless it is the file's start.
func linesBefore(text []byte, line, most int, isStart bool) (lines []span) {
	for len(lines) < most && line > 0 && text[line-1] == '\n' {
		from := bytes.LastIndexByte(text[:line-1], '\n') + 1
		if from == 0 && !isStart {
			break
		}
		lines = append(lines, span{int64(from), int64(line - 1)})
		line = from
	}
	slices.Reverse(lines)
	if len(lines) > 0 && lines[0].start == 0 && bytes.HasPrefix(text, []byte(byteOrderMark)) {
		lines[0].start = int64(len(byteOrderMark))
	}
	return lines
}

// linesAfter returns where the lines after a position are in a text, which may end inside of a line unless it is the file's end.
func linesAfter(text []byte, at, most int, isEnd bool) (lines []span) {
	feed := bytes.IndexByte(text[at:], '\n')
	if feed < 0 {
		return nil
	}
	for at += feed + 1; len(lines) < most && at < len(text); {
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			if end = len(text) - at; !isEnd && end < MaxLineBytes {
				break
			}
		}
		lines = append(lines, span{int64(at), int64(at + end)})
		at += end + 1
	}
	return lines
}

// showContext returns what is shown of lines in a text that begins at an offset of the file.
func (s *searcher) showContext(text []byte, low int64, lines []span) (shown []string, replaced map[string]int64) {
	show := func(line span) []byte { return text[line.start:line.end] }
	if s.rules.shown != nil {
		around, whole, before, err := s.textAround(text, low)
		if err != nil {
			return make([]string, len(lines)), nil
		}
		if !bytes.Equal(around, whole) {
			replaced = map[string]int64{}
			show = func(line span) []byte {
				line.start, line.end = line.start+before, line.end+before
				got, counts := newPage(s.rules.shown, around, int(line.start), whole).show(int(line.end - line.start))
				for name, count := range counts {
					replaced[name] += count
				}
				return got
			}
		}
	}
	for _, line := range lines {
		one := bytes.TrimSuffix(show(line), []byte{'\r'})
		if len(one) > MaxLineBytes {
			one = cutRunes(one[:MaxLineBytes], false)
		}
		text, _ := exact(string(one))
		shown = append(shown, text)
	}
	return shown, replaced
}

// textAround returns a text with what is around it in the file, what is shown of that, and where the text begins in it.
func (s *searcher) textAround(text []byte, low int64) (around, whole []byte, before int64, err error) {
	surroundings := s.rules.surroundings(s.ctx, s.fd)
	first, err := surroundings.before(low, nil)
	if err != nil {
		return nil, nil, 0, err
	}
	last, err := surroundings.after(low+int64(len(text)), nil)
	if err != nil {
		return nil, nil, 0, err
	}
	around = slices.Concat(first, text, last)
	whole, _ = s.rules.shown(around)
	return around, whole, int64(len(first)), nil
}
