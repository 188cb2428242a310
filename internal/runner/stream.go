package runner

import (
	"errors"
	"io"
	"os"
	"time"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
)

const (
	chunkSize = 64 << 10
	// redactedChunkSize is how much is redacted at a time. Marks can make it longer.
	redactedChunkSize = chunkSize / 4
)

// stream reads one output of the process until its end.
type stream struct {
	r       *os.File
	capture *capture
	mirror  *mirror
	// redactor redacts what raw has of the output; nil for a stream that isn't redacted.
	redactor *redact.Stream
	raw      []byte
	// done is closed when reading has ended. What was captured may be taken only after that.
	done chan struct{}
}

// newStream starts reading. matcher redacts the output, if it isn't nil.
func newStream(r *os.File, limits kept.Limits, live io.Writer, matcher *redact.Matcher) *stream {
	s := &stream{r: r, capture: newCapture(limits), mirror: newMirror(live), done: make(chan struct{})}
	if matcher != nil {
		s.redactor, s.raw = matcher.NewStream(), make([]byte, redactedChunkSize)
	}
	go s.read()
	return s
}

func (s *stream) read() {
	defer close(s.done)
	for {
		out, err := s.next()
		s.capture.write(out)
		s.mirror.send(out)
		if err != nil {
			s.capture.finish(errors.Is(err, io.EOF))
			return
		}
	}
}

// next returns what comes next, in a buffer of the mirror. With an error it is the last. It can be nothing, when all of it
// may be the beginning of a value.
func (s *stream) next() ([]byte, error) {
	buf := s.mirror.buffer()
	if s.redactor == nil {
		n, err := s.r.Read(buf)
		return buf[:n], err
	}
	n, err := s.r.Read(s.raw)
	out := s.redactor.Append(buf[:0], s.raw[:n])
	if err != nil {
		out = s.redactor.Flush(out)
	}
	return out, err
}

// addRedactions counts what was redacted. It is for after the end.
func (s *stream) addRedactions(o *result.Outcome, name string) {
	if s.redactor == nil {
		return
	}
	addRedactions(o, s.redactor.Counts(), name)
}

func addRedactions(o *result.Outcome, counts []redact.Count, name string) {
	for _, c := range counts {
		o.AddRedaction(result.Redaction{Name: c.Name, Stream: name, Count: c.Count})
	}
}

// finish waits up to limit for the end, and then stops reading: a process outside of the tree holds the pipe.
func (s *stream) finish(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
		_ = s.r.SetReadDeadline(time.Unix(1, 0))
		<-s.done
	}
	s.r.Close()
	s.mirror.finish(limit)
}

// feeder writes the input of the process. It ends at the latest with the process.
type feeder struct {
	w    *os.File
	done chan struct{}
}

// newFeeder closes w when data is written. w is nil if there is no input.
func newFeeder(w *os.File, data []byte) *feeder {
	f := &feeder{w: w, done: make(chan struct{})}
	if w == nil {
		close(f.done)
		return f
	}
	go func() {
		defer close(f.done)
		// It fails only if nobody reads any more.
		_, _ = w.Write(data)
		w.Close()
	}()
	return f
}

func (f *feeder) finish() {
	if f.w != nil {
		_ = f.w.SetWriteDeadline(time.Unix(1, 0))
	}
	<-f.done
}
