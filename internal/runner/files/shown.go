package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"slices"
	"sort"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/runner/redact"
)

// HiddenForm is how many bytes of a text a byte of something hidden takes at most: it is \u00XX in JSON.
const HiddenForm = 6

// cutMark stands for the part of something hidden that goes on behind the end of what is shown.
const cutMark = "[redacted]"

// window is a text of a file, and what is hidden in it. That can begin before the text and end behind it.
type window struct {
	// around has the text, which begins at start.
	around []byte
	start  int
	hidden []redact.Span
}

// window returns the window of a text that is at an offset of a file, with at least so many bytes of the file before and after it.
func (c *compiledRules) window(ctx context.Context, fd int, at int64, text []byte, around int64) (window, error) {
	if c.Hidden != nil {
		around += c.HiddenAround
	} else if around == 0 {
		return window{around: text}, nil
	}
	before, err := sys.ReadSpan(ctx, fd, sys.Span{Start: max(at-around, 0), End: at})
	if err != nil {
		return window{}, err
	}
	end := at + int64(len(text))
	after, err := sys.ReadSpan(ctx, fd, sys.Span{Start: end, End: end + around})
	if err != nil {
		return window{}, err
	}
	w := window{around: slices.Concat(before, text, after), start: len(before)}
	if c.Hidden != nil {
		w.hidden = c.Hidden(w.around)
	}
	return w, nil
}

// show returns what is shown of a part of the text, and the names of what is hidden there.
func (w *window) show(from, to int) (shown []byte, names []string) {
	from, to = w.start+from, w.start+to
	at := from
	for _, h := range w.hidden {
		if h.End <= from || h.Start >= to {
			continue
		}
		shown = append(shown, w.around[at:max(at, h.Start)]...)
		at = min(h.End, to)
		if h.End > to {
			shown = append(shown, cutMark...)
			continue
		}
		shown, names = append(shown, h.Mark...), append(names, h.Name)
	}
	if shown == nil {
		return w.around[from:to], nil
	}
	return append(shown, w.around[at:to]...), names
}

// showPart puts out what is shown of a part of a file that was read. Where that is longer than the output may be, it is less of
// the part, and the next Read goes on there. It says whether nothing is hidden.
func (c *call) showPart(result *Result, fd int, at int64, text []byte) (isWhole bool, err error) {
	w, err := c.rules.window(c.ctx, fd, at, text, 0)
	if err != nil {
		return false, sys.FileError("read", result.Path, err)
	}
	shown, names := w.show(0, len(text))
	if most := c.rules.MaxOutputBytes; int64(len(shown)) > most {
		fits := sort.Search(len(text), func(i int) bool {
			shown, _ := w.show(0, i+1)
			return int64(len(shown)) > most
		})
		if readsLines(c.req) {
			fits = bytes.LastIndexByte(text[:fits], '\n') + 1
		}
		if fits == 0 {
			return false, sys.NewError(reason.FileTooLarge, "The next line or byte of %s takes more than the %d bytes that can be read at once, as values in it are "+
				"redacted: read it with unit Bytes and another offset.", sys.Quote(result.Path), most)
		}
		shown, names = w.show(0, fits)
		result.Bytes = new(int64(fits))
		if readsLines(c.req) {
			lines := int64(bytes.Count(text[:fits], []byte("\n")))
			result.Lines = &lines
			result.truncate(max(c.req.Offset, 1) + lines)
		} else {
			result.truncate(at + int64(fits))
		}
	}
	c.out = shown
	c.count(names)
	return len(w.hidden) == 0, nil
}

// shownSum sums a content that is shown whole. It has no sum of another one: who knows the rest of the content could try
// out with it what is hidden, without the file.
type shownSum struct {
	hash.Hash
	rules *compiledRules
	// held is the end of what was written: as much as something hidden can be long, and what wasn't looked at.
	held  []byte
	hides bool
}

func (c *compiledRules) newSum() *shownSum { return &shownSum{Hash: sha256.New(), rules: c} }

func (s *shownSum) Write(p []byte) (int, error) {
	if around := int(s.rules.HiddenAround); s.rules.Hidden != nil && !s.hides {
		if s.held = append(s.held, p...); len(s.held) >= 2*around+sys.BufferBytes {
			s.look()
			s.held = append(s.held[:0], s.held[len(s.held)-around:]...)
		}
	}
	return s.Hash.Write(p)
}

func (s *shownSum) look() { s.hides = s.hides || len(s.rules.Hidden(s.held)) > 0 }

// hex is the sum, or empty.
func (s *shownSum) hex() string {
	if s.rules.Hidden != nil {
		s.look()
	}
	if s.hides {
		return ""
	}
	return hexSum(s.Hash)
}
