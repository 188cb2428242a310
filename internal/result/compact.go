package result

import (
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
	return compactStream{Bytes: s.total(), SHA256: firstText(s.SHA256, 64), InvalidUTF8: s.InvalidUTF8}
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

// cost is how many bytes what was kept takes as text.
func (s *Stream) cost() int { return costOf(s.Head, textCost) + costOf(s.Tail, textCost) }

// fill takes as much of both ends of the stream as room allows, counted as text.
func (c *compactStream) fill(s *Stream, room int) {
	cut := s.cut(room-room/2, room/2, textCost)
	if s.Whole() && len(cut.head)+len(cut.tail) == s.kept() {
		cut = excerpt{head: s.joined()}
	}
	c.Head, c.Tail, c.Head64, c.Tail64 = "", "", cut.head, cut.tail
	if utf8.Valid(cut.head) && utf8.Valid(cut.tail) {
		c.Head, c.Tail, c.Head64, c.Tail64 = string(cut.head), string(cut.tail), nil, nil
	}
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
