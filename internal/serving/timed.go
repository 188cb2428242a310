package serving

import (
	"net/http"
	"time"
)

// writePart is how many bytes of an answer have a deadline of their own.
const writePart = 64 << 10

// TimedWriter gives up an answer whose client stops reading. It has no deadline between two writes: a stream can be silent.
type TimedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// NewTimedWriter returns a writer of an answer, each 64 KiB of which a client may take the timeout to receive.
func NewTimedWriter(w http.ResponseWriter, timeout time.Duration) *TimedWriter {
	return &TimedWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}
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
