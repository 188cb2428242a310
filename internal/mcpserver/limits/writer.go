package limits

import (
	"net/http"
	"time"
)

const (
	// writeTimeout is how long a client may take to receive writePart bytes of an answer. Answers that nobody reads would take up
	// memory otherwise.
	writeTimeout = 30 * time.Second
	writePart    = 64 << 10
)

// TimedWriter gives up an answer whose client stops reading. It has no deadline between two writes: a stream can be silent.
type TimedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// NewTimedWriter returns a writer of an answer.
func NewTimedWriter(w http.ResponseWriter) *TimedWriter {
	return &TimedWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: writeTimeout}
}

// Write writes the data in parts, each with a deadline of its own.
func (t *TimedWriter) Write(data []byte) (written int, err error) {
	defer t.endDeadline()
	for {
		part := data[written:min(written+writePart, len(data))]
		t.startDeadline()
		n, err := t.ResponseWriter.Write(part)
		written += n
		if err != nil || written == len(data) {
			return written, err
		}
	}
}

// FlushError sends what was written. http.ResponseController calls it.
func (t *TimedWriter) FlushError() error {
	defer t.endDeadline()
	t.startDeadline()
	return t.control.Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (t *TimedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Finish bounds the time for what the server sends after the handler.
func (t *TimedWriter) Finish() { t.startDeadline() }

// Not every connection has deadlines, and an answer without them is better than none.

func (t *TimedWriter) startDeadline() { _ = t.control.SetWriteDeadline(time.Now().Add(t.timeout)) }
func (t *TimedWriter) endDeadline()   { _ = t.control.SetWriteDeadline(time.Time{}) }
