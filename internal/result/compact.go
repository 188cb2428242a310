package result

import (
	"encoding/base64"
	"errors"
	"unicode/utf8"
)

// compactStream is a stream as a termination message holds it. The bytes of both ends are in Head and Tail when they
// are text, in Head64 and Tail64 otherwise; never in both.
type compactStream struct {
	Bytes       int64  `json:"bytes,omitempty"`
	SHA256      string `json:"sha256,omitempty"`
	InvalidUTF8 bool   `json:"invalidUTF8,omitempty"`
	Head        string `json:"head,omitempty"`
	Tail        string `json:"tail,omitempty"`
	Head64      []byte `json:"head64,omitempty"`
	Tail64      []byte `json:"tail64,omitempty"`
}

func newCompactStream(s *Stream) compactStream {
	return compactStream{Bytes: s.total(), SHA256: clip(s.SHA256, 64), InvalidUTF8: s.InvalidUTF8}
}

// jsonCost is how many bytes encoding/json takes for a sequence, or a little more.
func jsonCost(seq []byte, valid bool) int {
	if !valid {
		return len(`\ufffd`)
	}
	switch c := seq[0]; {
	case len(seq) > 1:
		if r, _ := utf8.DecodeRune(seq); r == '\u2028' || r == '\u2029' {
			return len(`\u2028`)
		}
		return len(seq)
	case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
		return 2
	case c < ' ':
		return len(`\u0000`)
	default:
		return 1
	}
}

// shortened is the stream with at most limit bytes of each end.
func (s *Stream) shortened(limit int) *Stream {
	if len(s.Head)+len(s.Tail) <= 2*limit {
		return s
	}
	w := *s
	w.Bytes = s.total()
	head, tail := s.Head, s.Tail
	if s.Whole() {
		head = s.joined()
		tail = head
	}
	w.Head, w.Tail = head[:min(limit, len(head))], tail[max(0, len(tail)-limit):]
	return &w
}

// keptBytes are both ends as they were kept.
func (s *Stream) keptBytes() (head, tail []byte) {
	if s.Whole() {
		return s.joined(), nil
	}
	return s.Head, s.Tail
}

// keptCharacters are both ends without the characters that the cut between them split.
func (s *Stream) keptCharacters() (head, tail []byte) {
	head, tail = s.keptBytes()
	if s.Whole() {
		return head, tail
	}
	return TrimPartialEnd(head), trimPartialStart(tail)
}

// isText says whether the stream is better written as text than as base64.
func (s *Stream) isText() bool {
	head, tail := s.keptCharacters()
	if !utf8.Valid(head) || !utf8.Valid(tail) {
		return false
	}
	return costOf(head, jsonCost)+costOf(tail, jsonCost) <= 2*(len(head)+len(tail))
}

// compactSize is how many bytes all that was kept of a stream would take.
func compactSize(s *Stream) int {
	if !s.isText() {
		head, tail := s.keptBytes()
		return base64.StdEncoding.EncodedLen(len(head)) + base64.StdEncoding.EncodedLen(len(tail))
	}
	head, tail := s.keptCharacters()
	return costOf(head, jsonCost) + costOf(tail, jsonCost)
}

// fill takes as much of both ends of the stream as room allows.
func (c *compactStream) fill(s *Stream, room int) {
	if !s.isText() {
		c.fill64(s, room)
		return
	}
	if compactSize(s) <= room {
		head, tail := s.keptCharacters()
		c.Head, c.Tail = string(head), string(tail)
		return
	}
	cut := s.cut(room-room/2, room/2, jsonCost)
	c.Head, c.Tail = string(cut.head), string(cut.tail)
}

func (c *compactStream) fill64(s *Stream, room int) {
	head, tail := s.keptBytes()
	if compactSize(s) > room {
		if s.Whole() {
			// They can't overlap: what doesn't fit is longer than both halves.
			tail = head
		}
		n := room / 8 * 3
		head, tail = head[:min(n, len(head))], tail[len(tail)-min(n, len(tail)):]
	}
	c.Head64, c.Tail64 = head, tail
}

// stream is the inverse of fill.
func (c *compactStream) stream() (Stream, error) {
	s := Stream{Bytes: c.Bytes, SHA256: c.SHA256, InvalidUTF8: c.InvalidUTF8, Head: c.Head64, Tail: c.Tail64}
	if c.Head == "" && c.Tail == "" {
		return s, nil
	}
	if len(c.Head64) > 0 || len(c.Tail64) > 0 {
		return Stream{}, errors.New("is given both as text and as base64")
	}
	s.Head, s.Tail = []byte(c.Head), []byte(c.Tail)
	return s, nil
}
