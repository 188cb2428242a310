package runner

import (
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
)

// shown is what a terminal shows of both outputs, in the order in which they arrived. It is redacted again: a value that a stream
// shows in colors, or that is half in one stream and half in the other, is whole only here.
type shown struct {
	screen   *result.Screen
	redactor *redact.Stream
	limit    int
	// head and tail are the first and the last bytes, and a few more than the last. total is how many there were.
	head, tail []byte
	total      int64
}

// newShown keeps up to limit bytes. matcher redacts them, if it isn't nil.
func newShown(limit int, matcher *redact.Matcher) *shown {
	s := &shown{limit: limit}
	s.screen = result.NewScreen(s.write)
	if matcher != nil {
		s.redactor = matcher.NewStream()
	}
	return s
}

func (s *shown) write(p []byte) {
	if s.redactor != nil {
		p = s.redactor.Append(nil, p)
	}
	s.keep(p)
}

func (s *shown) keep(p []byte) {
	s.total += int64(len(p))
	n := min(s.limit-s.limit/2-len(s.head), len(p))
	s.head = append(s.head, p[:n]...)
	s.tail = append(s.tail, p[n:]...)
	if len(s.tail) > s.limit {
		s.cutTail()
	}
}

func (s *shown) cutTail() {
	s.tail = append(s.tail[:0], s.tail[max(len(s.tail)-s.limit/2, 0):]...)
}

func (s *shown) finish() {
	s.screen.Finish()
	if s.redactor != nil {
		s.keep(s.redactor.Flush(nil))
	}
	s.cutTail()
}

// addTo adds it to an outcome that has the streams, unless it is one of them. There is no more of it than of both. It is for
// after the end.
func (s *shown) addTo(o *result.Outcome) {
	if s.redactor != nil {
		addRedactions(o, s.redactor.Counts(), result.RedactedMessage)
	}
	isOne := (o.Stdout.Bytes == 0 || o.Stderr.Bytes == 0) && o.Stdout.Bytes+o.Stderr.Bytes == s.total
	if !isOne || s.screen.Changed() {
		o.Output = result.Stream{Head: s.head, Tail: s.tail, Bytes: s.total}
	}
}
