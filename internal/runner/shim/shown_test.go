package shim

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/kept"
)

// hung is a stream whose disk doesn't answer.
type hung struct {
	*kept.Stream
	reading, repaired chan struct{}
}

func (h *hung) ReadAt(context.Context, []byte, int64) (int, error) {
	close(h.reading)
	<-h.repaired
	return 0, output.ErrNoMore
}

// A disk that hangs doesn't hold up the end of a command, and what it gives later isn't taken for the next command's.
func TestAReadThatHangsDoesNotHoldUpTheEndOfACommand(t *testing.T) {
	conn, pool := socketPair(t)
	stream := &hung{kept.New(kept.Limits{Memory: 10}), make(chan struct{}), make(chan struct{})}
	s := &shown{}
	s.show(1, []kept.Output{stream, stream})
	s.answer(conn, 1, &read{ID: 1, Stream: output.Stdout, Max: 10})
	<-stream.reading
	hidden := make(chan struct{})
	go func() {
		s.hide()
		close(hidden)
	}()
	select {
	case <-hidden:
	case <-time.After(5 * time.Second):
		t.Error("the end waits")
	}
	next := kept.New(kept.Limits{Memory: 10})
	s.show(2, []kept.Output{next, next})
	close(stream.repaired)
	_ = pool.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	var r reply
	if _, err := receive(pool, &r, maxReply); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %+v, %v", r.Part, err)
	}
}

func socketPair(t *testing.T) (one, other *net.UnixConn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range pair {
		if conns[i], err = unixConn(fd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}
