package sessions

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// lineReader reads a line when it is asked for one, so that nothing is read while a call runs. A read can't be interrupted: its goroutine
// lasts until the input has another line, or ends.
type lineReader struct {
	in *bufio.Reader
	// asked gets the line that was asked for; nil if none is.
	asked chan inputLine
}

// inputLine is a line without its line break, or the error after which there is none.
type inputLine struct {
	text string
	err  error
}

// next returns the channel that gets the next line. A line that was asked for and not received yet isn't asked for again.
func (r *lineReader) next() <-chan inputLine {
	if r.asked == nil {
		asked := make(chan inputLine, 1)
		r.asked = asked
		go func() {
			text, err := readLine(r.in)
			asked <- inputLine{text, err}
		}()
	}
	return r.asked
}

// received says that the line that was asked for has arrived.
func (r *lineReader) received() { r.asked = nil }

// readLine reads up to a line break or the end.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "") {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}
