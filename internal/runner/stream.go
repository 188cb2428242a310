package runner

import (
	"errors"
	"io"
	"os"
	"time"

	"toolcall.dev/operator/internal/output/kept"
)

const chunkSize = 64 << 10

// stream reads one output of the process until its end.
type stream struct {
	r       *os.File
	capture *capture
	mirror  *mirror
	// done is closed when reading has ended. What was captured may be taken only after that.
	done chan struct{}
}

func newStream(r *os.File, limits kept.Limits, live io.Writer) *stream {
	s := &stream{r: r, capture: newCapture(limits), mirror: newMirror(live), done: make(chan struct{})}
	go s.read()
	return s
}

func (s *stream) read() {
	defer close(s.done)
	for {
		buf := s.mirror.buffer()
		n, err := s.r.Read(buf)
		s.capture.write(buf[:n])
		s.mirror.send(buf[:n])
		if err != nil {
			s.capture.finish(errors.Is(err, io.EOF))
			return
		}
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
