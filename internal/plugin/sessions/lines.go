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

// checkLine says why a line can't be a command line.
func checkLine(line string) error {
	switch {
	case len(line) > maxLine:
		return fmt.Errorf("the line is longer than %d bytes: write it to a file in the session, with kubectl toolcall session exec NAME --stdin, and run that", maxLine)
	case !utf8.ValidString(line):
		return errors.New("the line is not UTF-8 text: a call can only carry text, so encode the data, for example with base64")
	case strings.ContainsRune(line, 0):
		return errors.New("the line has a NUL character, which no command line can have")
	default:
		return nil
	}
}
