package result

import (
	"strconv"
	"strings"
)

// MaxMarker bounds the length in bytes of the line that stands for what Text left out, with the newline
// before it and the one that ends it.
const MaxMarker = 64

// Stream is what was kept of one output stream, and what is known of all of it.
//
// When Bytes is len(Head)+len(Tail) nothing was left out and Tail follows Head directly. Otherwise Head
// and Tail are the first and last bytes, and may be cut in the middle of a character.
type Stream struct {
	// Head and Tail are the first and the last bytes that were kept, as they were written.
	Head []byte `json:"head,omitempty"`
	Tail []byte `json:"tail,omitempty"`
	// Bytes is how many the process wrote.
	Bytes int64 `json:"bytes,omitempty"`
	// SHA256 of all bytes that the process wrote, in lower-case hexadecimal; empty when not all were seen.
	SHA256 string `json:"sha256,omitempty"`
	// InvalidUTF8 is true when any of those bytes, kept or not, weren't UTF-8.
	InvalidUTF8 bool `json:"invalidUTF8,omitempty"`
}

// Whole says whether every byte was kept.
func (s *Stream) Whole() bool {
	return s.Bytes <= int64(s.kept())
}

func (s *Stream) kept() int { return len(s.Head) + len(s.Tail) }

// Text returns the stream as valid UTF-8 of at most limit bytes, and whether anything was left out.
//
// What doesn't fit is cut from the middle, half of the limit before and half after one line that says how
// many of the process's bytes were left out; that line, and the newline that sets it apart, come on top of
// the limit (at most MaxMarker). Every maximal invalid sequence becomes one U+FFFD, as the Unicode standard
// recommends; control characters, NUL among them, are kept. A cut falls between characters: one that would
// be split is left out whole. When characters wider than half the limit stand at both ends, nothing but
// the line remains.
func (s *Stream) Text(limit int) (text string, truncated bool) {
	limit = max(limit, 0)
	if s.Whole() {
		all := s.joined()
		if n := textLen(all); n <= limit {
			return toText(all), false
		}
	}
	shown := s.cut(limit-limit/2, limit/2, textCost)
	return shown.text(s.total()), true
}

// total is Bytes, or what was kept when a broken sender claims less than that.
func (s *Stream) total() int64 {
	return max(s.Bytes, int64(len(s.Head)+len(s.Tail)))
}

// joined is Head and Tail as one. Use it for a whole stream only: otherwise bytes are missing between them.
func (s *Stream) joined() []byte {
	if len(s.Tail) == 0 {
		return s.Head
	}
	return append(append(make([]byte, 0, len(s.Head)+len(s.Tail)), s.Head...), s.Tail...)
}

// excerpt is the two ends of a stream that are shown. Both start and end between characters.
type excerpt struct{ head, tail []byte }

// cut takes as much from the start and the end of the stream as headMax and tailMax allow, by cost.
func (s *Stream) cut(headMax, tailMax int, cost costFunc) excerpt {
	if s.Whole() {
		all := s.joined()
		head := prefix(all, headMax, cost)
		return excerpt{head, suffix(all[len(head):], tailMax, cost)}
	}
	return excerpt{
		prefix(TrimPartialEnd(s.Head), headMax, cost),
		suffix(TrimPartialStart(s.Tail), tailMax, cost),
	}
}

// text joins both ends with the line that says how many of total bytes are left out between them.
func (e excerpt) text(total int64) string {
	var b strings.Builder
	b.WriteString(toText(e.head))
	if n := len(e.head); n > 0 && e.head[n-1] != '\n' {
		b.WriteByte('\n')
	}
	b.WriteString(marker(total - int64(len(e.head)) - int64(len(e.tail))))
	b.WriteString(toText(e.tail))
	return b.String()
}

func marker(left int64) string {
	unit := " bytes"
	if left == 1 {
		unit = " byte"
	}
	return "[... " + strconv.FormatInt(left, 10) + unit + " left out ...]\n"
}
