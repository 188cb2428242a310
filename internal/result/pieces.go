package result

import (
	"encoding/base64"
	"errors"
	"unicode/utf8"
)

// pieces is the compact form of a stream. The bytes of both ends are in Head and Tail when they are text,
// in Head64 and Tail64 otherwise; never in both.
type pieces struct {
	Bytes       int64  `json:"bytes,omitempty"`
	SHA256      string `json:"sha256,omitempty"`
	InvalidUTF8 bool   `json:"invalidUTF8,omitempty"`
	Head        string `json:"head,omitempty"`
	Tail        string `json:"tail,omitempty"`
	Head64      []byte `json:"head64,omitempty"`
	Tail64      []byte `json:"tail64,omitempty"`
}

func newPieces(s *Stream) pieces {
	return pieces{Bytes: s.total(), SHA256: clip(s.SHA256, 64), InvalidUTF8: s.InvalidUTF8}
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

// window is a stream that keeps no more of each end than could fit into limit, so that what follows takes
// time for those bytes only.
func (s *Stream) window(limit int) *Stream {
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

// rawEnds are the bytes that were kept.
func (s *Stream) rawEnds() (head, tail []byte) {
	if s.Whole() {
		return s.joined(), nil
	}
	return s.Head, s.Tail
}

// ends are the bytes that were kept, without the characters that the cut between them split.
func (s *Stream) ends() (head, tail []byte) {
	head, tail = s.rawEnds()
	if s.Whole() {
		return head, tail
	}
	return trimPartialEnd(head), trimPartialStart(tail)
}

// legible says whether the stream is better written as text than as base64.
func (s *Stream) legible() bool {
	head, tail := s.ends()
	if !utf8.Valid(head) || !utf8.Valid(tail) {
		return false
	}
	return costOf(head, jsonCost)+costOf(tail, jsonCost) <= 2*(len(head)+len(tail))
}

// need is how many bytes all that was kept would take.
func (p *pieces) need(s *Stream) int {
	if !s.legible() {
		head, tail := s.rawEnds()
		return base64.StdEncoding.EncodedLen(len(head)) + base64.StdEncoding.EncodedLen(len(tail))
	}
	head, tail := s.ends()
	return costOf(head, jsonCost) + costOf(tail, jsonCost)
}

// fill takes as much of both ends of the stream as room allows.
func (p *pieces) fill(s *Stream, room int) {
	if !s.legible() {
		p.fill64(s, room)
		return
	}
	if p.need(s) <= room {
		head, tail := s.ends()
		p.Head, p.Tail = string(head), string(tail)
		return
	}
	cut := s.cut(room-room/2, room/2, jsonCost)
	p.Head, p.Tail = string(cut.head), string(cut.tail)
}

func (p *pieces) fill64(s *Stream, room int) {
	head, tail := s.rawEnds()
	if p.need(s) > room {
		if s.Whole() {
			// They can't overlap: what doesn't fit is longer than both halves.
			tail = head
		}
		n := room / 8 * 3
		head, tail = head[:min(n, len(head))], tail[len(tail)-min(n, len(tail)):]
	}
	p.Head64, p.Tail64 = head, tail
}

// stream is the inverse of fill.
func (p *pieces) stream() (Stream, error) {
	s := Stream{Bytes: p.Bytes, SHA256: p.SHA256, InvalidUTF8: p.InvalidUTF8, Head: p.Head64, Tail: p.Tail64}
	if p.Head == "" && p.Tail == "" {
		return s, nil
	}
	if len(p.Head64) > 0 || len(p.Tail64) > 0 {
		return Stream{}, errors.New("is given both as text and as base64")
	}
	s.Head, s.Tail = []byte(p.Head), []byte(p.Tail)
	return s, nil
}
