package sessions

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxLine bounds a line in bytes. The API bounds a command line in characters.
const maxLine = 131071

// lineReader reads lines, one for each request, so that nothing is read while a call runs. A read can't be interrupted:
// its goroutine lasts until the input has another line, or ends.
type lineReader struct {
	requests chan struct{}
	lines    chan inputLine
	waiting  bool
}

// inputLine is a line without its line break, or the error after which there is none.
type inputLine struct {
	text string
	err  error
}

func newLineReader(in io.Reader) *lineReader {
	r := &lineReader{requests: make(chan struct{}), lines: make(chan inputLine, 1)}
	go func() {
		buffered := bufio.NewReader(in)
		for range r.requests {
			text, err := readLine(buffered)
			r.lines <- inputLine{text, err}
		}
	}()
	return r
}

// next returns the channel that gets the next line. A line that was requested and not received yet isn't requested again.
func (r *lineReader) next() <-chan inputLine {
	if !r.waiting {
		r.requests <- struct{}{}
		r.waiting = true
	}
	return r.lines
}

// received says that the requested line has arrived.
func (r *lineReader) received() { r.waiting = false }

func (r *lineReader) close() { close(r.requests) }

// readLine reads up to a line break or the end. It keeps no more of a line than is allowed, and discards the rest of it.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	tooLong := false
	for {
		part, err := in.ReadSlice('\n')
		if room := maxLine + 1 - len(line); len(part) > room {
			line, tooLong = append(line, part[:room]...), true
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return "", err
		}
		break
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	switch {
	case tooLong || len(text) > maxLine:
		return "", &lineError{fmt.Sprintf("the line is longer than %d bytes: write it to a file in the session, with kubectl toolcall session exec NAME --stdin, and run that", maxLine)}
	case !utf8.ValidString(text):
		return "", &lineError{"the line is not UTF-8 text: a call can only carry text, so encode the data, for example with base64"}
	case strings.ContainsRune(text, 0):
		return "", &lineError{"the line has a NUL character, which no command line can have"}
	default:
		return text, nil
	}
}

// lineError is the error of one line. The next one can be read.
type lineError struct{ text string }

func (e *lineError) Error() string { return e.text }
