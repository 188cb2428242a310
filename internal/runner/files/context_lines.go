package files

import (
	"bytes"
	"slices"

	"toolcall.dev/operator/internal/runner/files/sys"
)

// maxContextBytes is how far before and after a match its context is looked for.
const maxContextBytes = 32 << 10

// contextBytes is how much is read before and after a match for its context.
func (s *searcher) contextBytes() int64 {
	if s.req.ContextLines == 0 {
		return 0
	}
	return maxContextBytes
}

// addContext adds the lines around a match to it, as they are shown. The match is in the window at an offset.
func (s *searcher) addContext(h *hit, m lineMatch, w *window, at int) {
	start, stop := w.start+at, w.start+at+m.stop-m.start
	low, high := max(start-maxContextBytes, 0), min(stop+maxContextBytes, len(w.around))
	text := w.around[low:high]
	before, after := linesAround(text, start-low, stop-low)
	if len(before) > 0 && s.at+int64(m.start) > maxContextBytes {
		// It may be a part of one.
		before = before[1:]
	} else if len(before) > 0 && bytes.HasPrefix(text, []byte(byteOrderMark)) {
		before[0].Start = int64(len(byteOrderMark))
	}
	if n := len(after); n > 0 && high == stop+maxContextBytes && text[len(text)-1] != '\n' && after[n-1].End-after[n-1].Start < MaxLineBytes {
		after = after[:n-1]
	}
	before, after = before[max(len(before)-s.req.ContextLines, 0):], after[:min(len(after), s.req.ContextLines)]
	for i, line := range slices.Concat(before, after) {
		shown, hidden := w.show(low+int(line.Start)-w.start, low+int(line.End)-w.start)
		if shown = bytes.TrimSuffix(shown, []byte{'\r'}); len(shown) > MaxLineBytes {
			shown = cutRunes(shown[:MaxLineBytes], false)
		}
		text, _ := exact(string(shown))
		if i < len(before) {
			h.Before = append(h.Before, text)
		} else {
			h.After = append(h.After, text)
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
