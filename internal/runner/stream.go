package runner

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
)

const (
	chunkSize = 64 << 10
	// redactedChunkSize is how much is redacted at a time. Marks can make it longer.
	redactedChunkSize = chunkSize / 4
)

// stream is one output of the process.
type stream struct {
	r       *os.File
	raw     syscall.RawConn
	capture *capture
	mirror  *mirror
	// redactor redacts what unredacted has of the output; nil for a stream that isn't redacted.
	redactor   *redact.Stream
	unredacted []byte
	// isStopped says that read doesn't wait for more, and left is how many bytes it still takes of what is there. isEnded says that
	// reading has ended.
	isStopped, isEnded bool
	left               int
}

// newStream prepares to read. matcher redacts the output, if it isn't nil.
func newStream(r *os.File, limits kept.Limits, live io.Writer, matcher *redact.Matcher) *stream {
	s := &stream{r: r, capture: newCapture(limits), mirror: newMirror(live)}
	// It fails for a closed file only.
	s.raw, _ = r.SyscallConn()
	if matcher != nil {
		s.redactor, s.unredacted = matcher.NewStream(), make([]byte, redactedChunkSize)
	}
	return s
}

// take reads what is there, keeps and mirrors it, and adds it to what is shown. It returns how much it read: after 0 the poller
// tells when there is more, which it doesn't before. With an error there is nothing more.
func (s *stream) take(number int, to *shown) (int, error) {
	out, n, err := s.next()
	s.capture.write(out)
	to.screen.Write(number, out)
	s.mirror.send(out)
	return n, err
}

// next returns what is there, in a buffer of the mirror, and how much was read for it. It can be nothing, also when all of it may
// be the beginning of a value.
func (s *stream) next() (out []byte, n int, err error) {
	buf := s.mirror.buffer()
	if s.redactor == nil {
		n, err = s.read(buf)
		return buf[:n], n, err
	}
	n, err = s.read(s.unredacted)
	out = s.redactor.Append(buf[:0], s.unredacted[:n])
	if err != nil {
		out = s.redactor.Flush(out)
	}
	return out, n, err
}

// stop bounds what read still takes, because another process may write for ever: as many bytes as a pipe holds, and one, so that read
// sees the end behind them.
func (s *stream) stop() {
	if !s.isStopped {
		s.isStopped, s.left = true, pipeSize+1
	}
}

// read doesn't wait: it returns 0 when nothing is there.
func (s *stream) read(p []byte) (n int, err error) {
	if s.isStopped && s.left <= 0 {
		return 0, os.ErrDeadlineExceeded
	}
	closed := s.raw.Read(func(fd uintptr) bool {
		n, err = ignoringEINTR(func() (int, error) { return unix.Read(int(fd), p) })
		return true
	})
	n = max(n, 0)
	s.left -= n
	switch {
	case closed != nil:
		return 0, closed
	case errors.Is(err, unix.EAGAIN) && s.isStopped:
		return 0, os.ErrDeadlineExceeded
	case errors.Is(err, unix.EAGAIN):
		return 0, nil
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}

// end ends the stream. whole says that it was read to its end.
func (s *stream) end(whole bool) {
	s.isEnded = true
	s.capture.finish(whole)
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
