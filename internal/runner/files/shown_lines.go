package files

import (
	"bytes"
	"context"
	"slices"
	"sort"
)

// mayTakeMore says that the lines that wait don't reach the bounds, as far as their bytes in the file tell.
func (s *searcher) mayTakeMore() bool {
	size := s.hits.bytes
	for _, m := range s.waiting {
		size += int64(len(s.path) + min(m.stop-m.start, MaxLineBytes))
	}
	return len(s.hits.found)+len(s.waiting) < s.bounds.lines && size <= s.bounds.bytes
}

// showWaiting holds what is shown of the lines that wait. Lines that are near each other are shown together.
func (s *searcher) showWaiting() error {
	if len(s.waiting) == 0 {
		return nil
	}
	around := s.rules.surroundings(s.ctx, s.fd)
	for rest := s.waiting; len(rest) > 0; {
		n := 1
		for n < len(rest) && int64(rest[n].start-rest[n-1].stop) <= 2*around.plain {
			n++
		}
		if err := s.showTogether(rest[:n], around); err != nil {
			return err
		}
		rest = rest[n:]
	}
	s.waiting = s.waiting[:0]
	return nil
}

// showTogether holds what is shown of lines.
func (s *searcher) showTogether(lines []lineMatch, around *surroundings) error {
	s.rules.showing.Lock()
	defer s.rules.showing.Unlock()
	start, stop := lines[0].start, lines[len(lines)-1].stop
	before, err := around.before(s.at+int64(start), s.data[:start])
	if err != nil {
		return err
	}
	after, err := around.after(s.at+int64(stop), s.data[stop:])
	if err != nil {
		return err
	}
	text := slices.Concat(before, s.data[start:stop], after)
	w := &window{ctx: s.ctx, shown: s.rules.shown, text: text, shift: len(before) - start, hold: s.hold}
	w.show(w.part(0, len(text)), lines)
	return nil
}

// window is a text with lines that are shown. Those of the data are shifted.
type window struct {
	ctx   context.Context
	shown Shown
	text  []byte
	shift int
	hold  func(m lineMatch, shown []byte, replaced map[string]int64)
}

// windowPart is a part of a window, and what is shown of it. Nothing that isn't shown goes over its ends.
type windowPart struct {
	from, to int
	shown    []byte
	replaced map[string]int64
}

// smallWindow is the length of a part that isn't divided: to ask for it again and again takes less.
const smallWindow = 1 << 10

// show shows the lines in a part. Where only some of it is shown, it is divided, so that few lines are looked at singly.
func (w *window) show(p windowPart, lines []lineMatch) {
	text := w.text[p.from:p.to]
	switch {
	case len(lines) == 0 || w.ctx.Err() != nil:
		return
	case bytes.Equal(p.shown, text):
		for _, m := range lines {
			w.hold(m, w.text[w.shift+m.start:w.shift+m.stop], nil)
		}
		return
	case len(lines) > 1 && len(text) > smallWindow:
		if left, right, ok := w.divide(p); ok {
			n := sort.Search(len(lines), func(i int) bool { return w.shift+lines[i].start >= right.from })
			w.show(left, lines[:n])
			w.show(right, lines[n:])
			return
		}
	}
	start, end := hiddenPart(text, p.shown, p.replaced)
	for _, m := range lines {
		at, size := w.shift+m.start-p.from, m.stop-m.start
		switch {
		case w.ctx.Err() != nil:
			return
		case at >= start && at+size < end:
			w.hold(m, []byte(cutMark), nil)
		default:
			line, replaced := newPage(w.shown, text, at, p.shown).show(size)
			w.hold(m, line, replaced)
		}
	}
}

// divide divides a part at the end of a line near its middle, if there is one over which nothing goes: then both sides show
// what the part shows.
func (w *window) divide(p windowPart) (left, right windowPart, ok bool) {
	middle, low, high := (p.from+p.to)/2, p.to, p.from
	for distance := 0; distance < (p.to-p.from)/2; distance = max(2*distance, smallWindow/8) {
		for _, at := range []int{w.lineEnd(p.from, middle-distance), w.nextLine(middle+distance, p.to)} {
			if at <= p.from || at >= p.to || at >= low && at <= high {
				continue
			}
			low, high = min(low, at), max(high, at)
			left, right = w.part(p.from, at), w.part(at, p.to)
			if bytes.Equal(slices.Concat(left.shown, right.shown), p.shown) {
				return left, right, true
			}
		}
	}
	return left, right, false
}

func (w *window) part(from, to int) windowPart {
	shown, replaced := w.shown(w.text[from:to])
	return windowPart{from, to, shown, replaced}
}

// lineEnd returns the end of the last line that ends in a part; from if none does.
func (w *window) lineEnd(from, to int) int {
	return from + bytes.LastIndexByte(w.text[from:to], '\n') + 1
}

// nextLine returns the end of the first line that ends in a part; the part's end if none does.
func (w *window) nextLine(from, to int) int {
	if feed := bytes.IndexByte(w.text[from:to], '\n'); feed >= 0 {
		return from + feed + 1
	}
	return to
}
