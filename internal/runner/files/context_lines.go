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
	before, after := linesAround(text, int(start-low), int(stop-low))
	if low > 0 && len(before) > 0 {
		// It may be a part of one.
		before = before[1:]
	} else if len(before) > 0 && bytes.HasPrefix(text, []byte(byteOrderMark)) {
		before[0].Start = int64(len(byteOrderMark))
	}
	if n := len(after); n > 0 && low+int64(len(text)) == stop+maxContextBytes && text[len(text)-1] != '\n' && after[n-1].End-after[n-1].Start < MaxLineBytes {
		after = after[:n-1]
	}
	before, after = before[max(len(before)-s.around, 0):], after[:min(len(after), s.around)]
	w, err := s.rules.window(s.ctx, s.fd, low, text)
	if err != nil {
		return
	}
	for i, line := range slices.Concat(before, after) {
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

// linesAround returns where the lines of a text are that are before a part of it, and behind the line in which that ends.
func linesAround(text []byte, start, stop int) (before, after []sys.Span) {
	at := 0
	for line := range bytes.Lines(text) {
		one := sys.Span{Start: int64(at), End: int64(at + len(bytes.TrimSuffix(line, []byte("\n"))))}
		if at > stop {
			after = append(after, one)
		}
		if at += len(line); at <= start {
			before = append(before, one)
		}
	}
	return before, after
}
