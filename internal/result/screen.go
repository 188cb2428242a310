package result

import (
	"bytes"
	"unicode/utf8"
)

const (
	// screenBlock is how much text a Screen collects before it passes it on.
	screenBlock = 16 << 10
	// maxScreenLine is how much of a line a Screen can still redraw.
	maxScreenLine = 64 << 10
	// maxSequence bounds an escape sequence, so that one without an end hides little.
	maxSequence = 4 << 10
)

// Screen turns what a process writes to its streams into the text that a terminal shows in the end, in the order of the
// writes and as valid UTF-8: without escape sequences and control characters, and of a line that is drawn again only what stood
// there last. What moves the cursor to another line isn't followed. It takes a bounded amount of memory.
type Screen struct {
	to      func([]byte)
	streams [2]decoder
	// text ends with the line that can still be drawn again. It starts at line.
	text []byte
	line int
	// isSplit says that the beginning of the line was passed on already.
	isSplit bool
	// home says that the cursor is at the start of the line, back how many characters it is left of the end otherwise. What comes
	// next stands in place of what is behind the cursor.
	home bool
	back int
	// changed says that the text isn't the bytes that were written.
	changed bool
}

// decoder reads one stream.
type decoder struct {
	state decoderState
	// length is that of the sequence so far, first the first byte of its parameters.
	length int
	first  byte
	// partial is the beginning of a character.
	partial []byte
}

type decoderState int

const (
	inText decoderState = iota
	afterEscape
	// inControl is a sequence that ends with a letter or the like, inString one that ends with BEL or ESC \.
	inControl
	inString
)

// NewScreen returns an empty Screen. It passes its text on in pieces, which belong to it.
func NewScreen(to func([]byte)) *Screen { return &Screen{to: to} }

// Show is what a terminal shows of a text.
func Show(text string) string {
	var b bytes.Buffer
	s := NewScreen(func(p []byte) { b.Write(p) })
	s.Write(0, []byte(text))
	s.Finish()
	return b.String()
}

// Write adds what a process wrote to one of the two streams.
func (s *Screen) Write(stream int, p []byte) {
	d := &s.streams[stream]
	if len(d.partial) > 0 {
		p = append(d.partial, p...)
		d.partial = nil
	}
	for len(p) > 0 {
		if d.state != inText {
			p = p[s.sequence(d, p[0]):]
			continue
		}
		if n := plainLen(p); n > 0 {
			s.print(p[:n])
			p = p[n:]
			continue
		}
		if !utf8.FullRune(p) {
			d.partial = bytes.Clone(p)
			return
		}
		p = p[s.character(d, p):]
	}
}

// Finish passes the rest on. A line that was about to be drawn again stands as it is.
func (s *Screen) Finish() {
	for i := range s.streams {
		if rest := s.streams[i].partial; len(rest) > 0 {
			s.changed = true
			s.print([]byte(toText(rest)))
		}
	}
	s.pass(len(s.text))
}

// Changed says whether the text isn't just the bytes that were written.
func (s *Screen) Changed() bool { return s.changed }

// plainLen is how many bytes p begins with that are shown as they are.
func plainLen(p []byte) int {
	for i, c := range p {
		if c != '\t' && (c < ' ' || c >= 0x7f) {
			return i
		}
	}
	return len(p)
}

// character takes one character that isn't plain, and returns its length.
func (s *Screen) character(d *decoder, p []byte) int {
	size, valid := next(p)
	r, _ := utf8.DecodeRune(p[:size])
	switch {
	case !valid:
		s.changed = true
		s.print([]byte(replacement))
	case r == '\n':
		s.newline()
	case r >= 0xa0:
		s.print(p[:size])
	default:
		s.changed = true
		s.control(d, r)
	}
	return size
}

func (s *Screen) control(d *decoder, r rune) {
	switch r {
	case '\r':
		s.home = true
	case '\b':
		s.back++
	case 0x1b:
		*d = decoder{state: afterEscape}
	case 0x9b:
		*d = decoder{state: inControl}
	}
	// The others that begin a string come from text that was decoded wrongly, and would hide what follows them. Programs write ESC.
}

// sequence takes the next byte of an escape sequence, and returns 0 for one that isn't part of it any more.
func (s *Screen) sequence(d *decoder, c byte) int {
	if d.length++; d.length > maxSequence || c == '\n' {
		d.state = inText
		return 0
	}
	switch {
	case c == 0x1b:
		// Another one begins, or a string ends.
		d.state = afterEscape
	case d.state == inString:
		if c == '\a' {
			d.state = inText
		}
	case d.state == afterEscape:
		s.afterEscape(d, c)
	case c < ' ' || c > '~':
		d.state = inText
		return 0
	case c >= '@':
		d.state = inText
		s.redraw(d, c)
	case d.length == 1:
		d.first = c
	}
	return 1
}

func (s *Screen) afterEscape(d *decoder, c byte) {
	switch {
	case c == '[':
		*d = decoder{state: inControl}
	case bytes.IndexByte([]byte("]PX^_"), c) >= 0:
		*d = decoder{state: inString}
	case c >= ' ' && c < '0':
		// One more comes.
	default:
		d.state = inText
	}
}

// redraw does what a control sequence does to the line.
func (s *Screen) redraw(d *decoder, final byte) {
	switch {
	case final == 'K' && d.first == '2':
		s.home = true
		s.erase()
	case final == 'K' && (d.length == 1 || d.first == '0'):
		s.erase()
	case final == 'G' && (d.length == 1 || d.length == 2 && d.first <= '1'):
		s.home = true
	}
}

// erase removes what is behind the cursor. A line whose beginning was passed on stands, and the next one begins.
func (s *Screen) erase() {
	end := len(s.text)
	switch {
	case s.home && s.isSplit:
		s.newline()
		return
	case s.home:
		end = s.line
	}
	for ; s.back > 0 && end > s.line; s.back-- {
		_, size := utf8.DecodeLastRune(s.text[s.line:end])
		end -= size
	}
	s.text = s.text[:end]
	s.home, s.back = false, 0
}

// print adds characters that are shown.
func (s *Screen) print(p []byte) {
	if s.home || s.back > 0 {
		s.erase()
	}
	s.text = append(s.text, p...)
	switch {
	case len(s.text)-s.line > maxScreenLine:
		s.pass(len(s.text))
		s.isSplit = true
	case s.line >= screenBlock:
		s.pass(s.line)
	}
}

func (s *Screen) newline() {
	s.home, s.back, s.isSplit = false, 0, false
	s.text = append(s.text, '\n')
	s.line = len(s.text)
	if s.line >= screenBlock {
		s.pass(s.line)
	}
}

// pass passes the first bytes on.
func (s *Screen) pass(n int) {
	if n > 0 {
		s.to(s.text[:n])
	}
	s.text = append(s.text[:0], s.text[n:]...)
	s.line = max(s.line-n, 0)
}
