package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"
	"sort"
)

// Shown returns what is shown of a text, and how often each name stands in it for something that isn't. Goroutines call it at
// the same time.
type Shown func(text []byte) (shown []byte, replaced map[string]int64)

// cutMark stands for the part of something that isn't shown, of which the rest is behind the end of a page.
const cutMark = "[redacted]"

// page is a part of a file with what is around it, which says whether something begins or ends in it that isn't shown.
type page struct {
	shown               Shown
	before, text, after []byte
}

// show returns what is shown of the first bytes of the page. Shown is asked for the text up to both ends of it, and beyond:
// where the answers differ, an end is in something that isn't shown.
func (p *page) show(size int) (shown []byte, replaced map[string]int64) {
	around := slices.Concat(p.before, p.text, p.after)
	end := len(p.before) + size
	shown, replaced = p.shown(around[:end])
	start := 0
	if len(p.before) > 0 {
		head, earlier := p.shown(p.before)
		start = commonPrefix(head, shown)
		replaced = without(replaced, earlier)
	}
	if end == len(around) {
		return shown[start:], replaced
	}
	whole, _ := p.shown(around)
	if same := commonPrefix(shown, whole); same < len(shown) {
		return append(slices.Clone(shown[min(start, same):same]), cutMark...), replaced
	}
	return shown[start:], replaced
}

// without are the counts that weren't there earlier.
func without(all, earlier map[string]int64) map[string]int64 {
	left := map[string]int64{}
	for name, count := range all {
		if more := count - earlier[name]; more > 0 {
			left[name] = more
		}
	}
	return left
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// showPart writes what is shown of a part of a file that was read. Where that is longer than the output may be, it is less of
// the part, and the next Read goes on there. It says whether nothing was replaced.
func (c *call) showPart(result *Result, fd int, part span, text []byte) (isWhole bool, err error) {
	p := &page{shown: c.rules.shown, text: text}
	if p.before, err = readSpan(c.ctx, fd, span{max(part.start-c.rules.shownAround, 0), part.start}); err != nil {
		return false, fileError("read", result.Path, err)
	}
	if p.after, err = readSpan(c.ctx, fd, span{part.end, part.end + c.rules.shownAround}); err != nil {
		return false, fileError("read", result.Path, err)
	}
	shown, replaced := p.show(len(text))
	if int64(len(shown)) > c.rules.maxOutput {
		ends := c.pageEnds(text)
		fits := sort.Search(len(ends), func(i int) bool {
			shown, _ := p.show(ends[i])
			return int64(len(shown)) > c.rules.maxOutput
		})
		if fits == 0 {
			return false, newError(FileTooLarge, "The next line or byte of %s takes more than the %d bytes that can be read at once, as values in it are "+
				"redacted: read it with unit Bytes and another offset.", quote(result.Path), c.rules.maxOutput)
		}
		shown, replaced = p.show(ends[fits-1])
		result.Bytes = int64(ends[fits-1])
		if c.req.readsLines() {
			result.Lines = fits
			result.truncate(max(c.req.Offset, 1) + int64(fits))
		} else {
			result.truncate(part.start + result.Bytes)
		}
	}
	c.rules.replaced(replaced)
	_, err = c.stdout.Write(shown)
	return len(replaced) == 0, writeError(err)
}

// shownSum sums a content that is shown whole. It has no sum of another one: who knows the rest of the content could try
// out with it what isn't shown, without the file.
type shownSum struct {
	hash.Hash
	shown  Shown
	around int
	// held is the end of what was written: as much as something that isn't shown can be long, and what wasn't looked at.
	held  []byte
	hides bool
}

func (c *call) newShownSum() *shownSum {
	return &shownSum{Hash: sha256.New(), shown: c.rules.shown, around: int(c.rules.shownAround)}
}

func (s *shownSum) Write(p []byte) (int, error) {
	if s.shown != nil && !s.hides {
		if s.held = append(s.held, p...); len(s.held) >= 2*s.around+bufferBytes {
			s.look()
			s.held = append(s.held[:0], s.held[len(s.held)-s.around:]...)
		}
	}
	return s.Hash.Write(p)
}

func (s *shownSum) look() {
	_, replaced := s.shown(s.held)
	s.hides = s.hides || len(replaced) > 0
}

// hex is the sum, or empty.
func (s *shownSum) hex() string {
	if s.shown != nil {
		s.look()
	}
	if s.hides {
		return ""
	}
	return hexSum(s.Hash)
}

// pageEnds are where a page may end: behind each line, or each byte.
func (c *call) pageEnds(text []byte) []int {
	var ends []int
	for at := 0; at < len(text); {
		size := 1
		if c.req.readsLines() {
			if size = bytes.IndexByte(text[at:], '\n') + 1; size == 0 {
				size = len(text) - at
			}
		}
		at += size
		ends = append(ends, at)
	}
	return ends
}

func readSpan(ctx context.Context, fd int, part span) ([]byte, error) {
	var b bytes.Buffer
	if _, err := copyPart(ctx, &b, fd, part); err != nil {
		return nil, fmt.Errorf("read around a page: %w", err)
	}
	return b.Bytes(), nil
}
