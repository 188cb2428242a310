package files

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"hash"
	"slices"
	"sort"
)

// Shown returns what is shown of a text, and how often each name stands in it for something that isn't. Goroutines call it at
// the same time.
type Shown func(text []byte) (shown []byte, replaced map[string]int64)

// cutMark stands for the part of something that isn't shown, of which the rest is behind the end of a page.
const cutMark = "[redacted]"

// page is a part of a text with what is around it, which says whether something begins or ends in it that isn't shown.
type page struct {
	shown  Shown
	around []byte
	start  int
	// before and whole are what is shown of the text before the page, and of all of it.
	before, whole []byte
	earlier       map[string]int64
}

// newPage returns a page that begins at start. whole is what is shown of around.
func newPage(shown Shown, around []byte, start int, whole []byte) *page {
	p := &page{shown: shown, around: around, start: start, whole: whole}
	if start > 0 {
		p.before, p.earlier = shown(around[:start])
	}
	return p
}

// show returns what is shown of the first bytes of the page. Shown is asked for the text up to both ends of it, and beyond:
// where the answers differ, an end is in something that isn't shown.
func (p *page) show(size int) (shown []byte, replaced map[string]int64) {
	end := p.start + size
	shown, replaced = p.shown(p.around[:end])
	start := commonPrefix(p.before, shown)
	if p.start > 0 {
		replaced = without(replaced, p.earlier, start < len(p.before))
	}
	if same := commonPrefix(shown, p.whole); end < len(p.around) && same < len(shown) {
		if same <= start {
			// What was replaced is a part of what goes on behind the end: it counts where that ends.
			replaced = nil
		}
		return append(slices.Clone(shown[min(start, same):same]), cutMark...), replaced
	}
	text, left := p.around[p.start:end], shown[start:]
	if start < len(p.before) && len(left) < len(text) && bytes.HasSuffix(text, left) {
		// What ends here has its mark before the page, in place of a part of it that counts by itself.
		return append([]byte(cutMark), left...), replaced
	}
	return left, replaced
}

// without are the counts that weren't there earlier. Of something that has ended since, parts may have counted as often.
func without(all, earlier map[string]int64, hasEnded bool) map[string]int64 {
	left, ended := map[string]int64{}, ""
	for name, count := range all {
		more := count - earlier[name]
		switch {
		case more > 0:
			left[name] = more
		case count > 0 && (ended == "" || cmp.Or(cmp.Compare(more, all[ended]-earlier[ended]), cmp.Compare(name, ended)) < 0):
			ended = name
		}
	}
	if hasEnded && len(left) == 0 && ended != "" {
		left[ended] = 1
	}
	return left
}

// hiddenPart is what the only replacement in a text has taken at least of it; nothing if there are more.
func hiddenPart(text, shown []byte, replaced map[string]int64) (start, end int) {
	count := int64(0)
	for _, n := range replaced {
		count += n
	}
	if count != 1 {
		return 0, 0
	}
	start = commonPrefix(text, shown)
	same := 0
	for same < min(len(text), len(shown))-start && text[len(text)-1-same] == shown[len(shown)-1-same] {
		same++
	}
	return start, len(text) - same
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
	surroundings := c.rules.surroundings(c.ctx, fd)
	before, err := surroundings.before(part.start, nil)
	if err != nil {
		return false, fileError("read", result.Path, err)
	}
	after, err := surroundings.after(part.end, nil)
	if err != nil {
		return false, fileError("read", result.Path, err)
	}
	around := slices.Concat(before, text, after)
	whole, _ := c.rules.shown(around)
	p := newPage(c.rules.shown, around, len(before), whole)
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
		if readsLines(c.req) {
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
		if readsLines(c.req) {
			if size = bytes.IndexByte(text[at:], '\n') + 1; size == 0 {
				size = len(text) - at
			}
		}
		at += size
		ends = append(ends, at)
	}
	return ends
}
