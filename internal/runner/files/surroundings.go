package files

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// What isn't shown takes so many bytes of a text for each of its own.
const (
	// ShownForm is the most: a byte is \u00XX in JSON.
	ShownForm = 6
	// plainForm is without escapes: two digits. Line ends can be among them.
	plainForm = 2
	// escapeForm is what an escape adds: five characters in JSON.
	escapeForm = 5
	// maxEscape is the longest escape, whose beginning can be beyond the end of a text.
	maxEscape = 6
)

// surroundings are what is around a text of a file, as far as something can go that isn't shown and begins or ends in the text.
type surroundings struct {
	ctx context.Context
	fd  int
	// most is how far that is at most, and plain how far without escapes and line ends.
	most, plain int64
}

func (c *compiledRules) surroundings(ctx context.Context, fd int) *surroundings {
	return &surroundings{ctx: ctx, fd: fd, most: c.shownAround, plain: c.shownAround / ShownForm * plainForm}
}

// before returns what is before a position in the file. known is the end of it.
func (s *surroundings) before(at int64, known []byte) ([]byte, error) {
	length, left := spend(known, s.plain+maxEscape, true)
	text := known[len(known)-length:]
	for at -= int64(len(known)); at > 0 && left >= 0 && int64(len(text)) < s.most; {
		size := min(max(left+1, bufferBytes), at, s.most-int64(len(text)))
		more, err := readSpan(s.ctx, s.fd, span{at - size, at})
		if err != nil {
			return nil, err
		}
		if int64(len(more)) < size {
			// The file has become shorter.
			break
		}
		length, left = spend(more, left, true)
		text, at = slices.Concat(more[len(more)-length:], text), at-size
	}
	return text, nil
}

// after returns what follows a position in the file. known is the beginning of it.
func (s *surroundings) after(at int64, known []byte) ([]byte, error) {
	length, left := spend(known, s.plain+maxEscape, false)
	text := slices.Clone(known[:length])
	for at += int64(len(known)); left >= 0 && int64(len(text)) < s.most; {
		size := min(max(left+1, bufferBytes), s.most-int64(len(text)))
		more, err := readSpan(s.ctx, s.fd, span{at, at + size})
		if err != nil {
			return nil, err
		}
		length, left = spend(more, left, false)
		text, at = append(text, more[:length]...), at+size
		if int64(len(more)) < size {
			break
		}
	}
	return text, nil
}

// spend returns how much of a text something takes that needs no more than left bytes of it without line ends and escapes, and
// what is left then: less than 0 if it doesn't take more. It comes from the end of the text or from its beginning.
func spend(text []byte, left int64, fromEnd bool) (length int, rest int64) {
	for i := range text {
		next := text[i]
		if fromEnd {
			next = text[len(text)-1-i]
		}
		switch next {
		case '\r', '\n':
		case '\\', '%':
			left += escapeForm - 1
		default:
			left--
		}
		if left < 0 {
			return i, left
		}
	}
	return len(text), left
}

func readSpan(ctx context.Context, fd int, part span) ([]byte, error) {
	var b bytes.Buffer
	if _, err := copyPart(ctx, &b, fd, part); err != nil {
		return nil, fmt.Errorf("read around a text: %w", err)
	}
	return b.Bytes(), nil
}
