package files

import (
	"bytes"
	"slices"

	"toolcall.dev/operator/internal/runner/files/sys"
)

// maxContextBytes is how far before and after a match its context is looked for.
const maxContextBytes = 32 << 10

// addContext adds the lines around a match to it, as they are shown. What can't be read of them is left out.
func (s *searcher) addContext(h *hit, m lineMatch) {
	start, stop := s.at+int64(m.start), s.at+int64(m.stop)
	low := max(start-maxContextBytes, 0)
	text, err := sys.ReadSpan(s.ctx, s.fd, sys.Span{Start: low, End: stop + maxContextBytes})
	if err != nil || low+int64(len(text)) < stop {
		return
	}
	before := linesBefore(text, int(start-low), s.around, low == 0)
	after := linesAfter(text, int(stop-low), s.around, low+int64(len(text)) < stop+maxContextBytes)
	all := slices.Concat(before, after)
	w, err := s.rules.window(s.ctx, s.fd, low, text)
	if err != nil {
		return
	}
	for i, line := range all {
		shown, hidden := w.show(int(line.Start), int(line.End))
		if shown = bytes.TrimSuffix(shown, []byte{'\r'}); len(shown) > MaxLineBytes {
			shown = cutRunes(shown[:MaxLineBytes], false)
		}
		text, _ := exact(string(shown))
		if i < len(before) {
			h.before = append(h.before, text)
		} else {
			h.after = append(h.after, text)
		}
		h.hidden = append(h.hidden, hidden...)
		s.hits.bytes += int64(len(text))
	}
}

// linesBefore returns where the lines before a line are in a text, which may begin inside of a line unless it is the file's start.
func linesBefore(text []byte, line, most int, isStart bool) (lines []sys.Span) {
	for len(lines) < most && line > 0 && text[line-1] == '\n' {
		from := bytes.LastIndexByte(text[:line-1], '\n') + 1
		if from == 0 && !isStart {
			break
		}
		lines = append(lines, sys.Span{Start: int64(from), End: int64(line - 1)})
		line = from
	}
	slices.Reverse(lines)
	if len(lines) > 0 && lines[0].Start == 0 && bytes.HasPrefix(text, []byte(byteOrderMark)) {
		lines[0].Start = int64(len(byteOrderMark))
	}
	return lines
}

// linesAfter returns where the lines after a position are in a text, which may end inside of a line unless it is the file's end.
func linesAfter(text []byte, at, most int, isEnd bool) (lines []sys.Span) {
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
		lines = append(lines, sys.Span{Start: int64(at), End: int64(at + end)})
		at += end + 1
	}
	return lines
}
