package shim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/kept"
)

// maxPart is how many bytes of output are in a frame.
const maxPart = 32 << 10

// read asks for output of the command that runs.
type read struct {
	ID     uint64        `json:"id"`
	Stream output.Stream `json:"stream"`
	Offset int64         `json:"offset"`
	Max    int           `json:"max,omitempty"`
	// Wait has the answer wait until the stream has more than Offset, or has ended. Then there are no bytes in it.
	Wait bool `json:"wait,omitempty"`
}

// answer is what there is.
type answer struct {
	ID    uint64      `json:"id"`
	Bytes []byte      `json:"bytes,omitempty"`
	Info  output.Info `json:"info"`
	// State says why there are no bytes, Next where the stream goes on when they are missing.
	State string `json:"state,omitempty"`
	Next  int64  `json:"next,omitempty"`
}

// States of an answer without bytes.
const (
	stateEnd     = "End"
	stateNoMore  = "NoMore"
	stateMissing = "Missing"
	stateFailed  = "Failed"
)

// err is the error of an output.Reader.
func (a *answer) err() error {
	switch a.State {
	case "":
		return nil
	case stateEnd:
		return io.EOF
	case stateNoMore:
		return output.ErrNoMore
	case stateMissing:
		return &output.MissingError{Next: a.Next}
	default:
		return errors.New("the stream can't be read")
	}
}

// setErr is the opposite of err.
func (a *answer) setErr(err error) {
	var missing *output.MissingError
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		a.State = stateEnd
	case errors.Is(err, output.ErrNoMore):
		a.State = stateNoMore
	case errors.As(err, &missing):
		a.State, a.Next = stateMissing, missing.Next
	default:
		a.State = stateFailed
	}
}

// shown is the output of the command that runs. In between there is none.
type shown struct {
	mu      sync.Mutex
	number  uint64
	streams []kept.Output

	// sending is held while an answer is sent. It is for the command of the number answered, and 0 is none.
	sending  sync.Mutex
	answered uint64
}

func (s *shown) show(number uint64, streams []kept.Output) {
	s.answers(number)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number, s.streams = number, streams
}

// hide has nothing more sent: both streams have ended. It doesn't wait for what is being read, which may hang in a disk.
func (s *shown) hide() {
	s.mu.Lock()
	s.streams = nil
	s.mu.Unlock()
	s.answers(0)
}

func (s *shown) answers(number uint64) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.answered = number
}

// send sends an answer, unless the command has ended meanwhile. When it fails, the pool is gone.
func (s *shown) send(conn *net.UnixConn, number uint64, a *answer) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.answered == number {
		_ = send(conn, &reply{Part: a})
	}
}

// answer sends what is asked for. What is asked for too late gets no answer but the end of the command.
func (s *shown) answer(conn *net.UnixConn, number uint64, r *read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil || s.number != number {
		return
	}
	stream := s.streams[0]
	if r.Stream == output.Stderr {
		stream = s.streams[1]
	}
	go func() {
		a := &answer{ID: r.ID}
		if r.Wait {
			a.setErr(stream.Wait(context.Background(), r.Offset))
		} else {
			p := make([]byte, min(max(r.Max, 1), maxPart))
			n, err := stream.ReadAt(context.Background(), p, r.Offset)
			a.Bytes = p[:n]
			a.setErr(err)
		}
		a.Info = stream.Info()
		s.send(conn, number, a)
	}()
}

// takeFiles takes the files that have the streams.
func (r *reply) takeFiles(streams []kept.Output) (files []*os.File) {
	for i, to := range []*int64{&r.Stdout, &r.Stderr} {
		if i >= len(streams) {
			break
		}
		// It is the runner's own.
		stream, ok := streams[i].(*kept.Stream)
		if !ok {
			continue
		}
		file, limit := stream.TakeFile()
		if file != nil {
			files, *to = append(files, file), limit
		}
	}
	return files
}
