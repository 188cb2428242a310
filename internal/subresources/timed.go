package subresources

import (
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// writeTimeout is how long a client may take none of the bytes that wait for it.
const writeTimeout = time.Minute

// timedWriter gives a client so much time for each write, up to the Flush that follows it. In between, when there is nothing to
// send, a client may wait for as long as it likes.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	clock   clock.PassiveClock
}

func newTimedWriter(w http.ResponseWriter, c clock.PassiveClock) *timedWriter {
	return &timedWriter{w, http.NewResponseController(w), c}
}

// Write implements http.ResponseWriter.
func (w *timedWriter) Write(p []byte) (int, error) {
	// Not every writer can be given a time.
	_ = w.control.SetWriteDeadline(w.clock.Now().Add(writeTimeout))
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController looks for.
func (w *timedWriter) FlushError() error {
	err := w.control.Flush()
	_ = w.control.SetWriteDeadline(time.Time{})
	return err
}
