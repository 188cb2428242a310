package runner

import (
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// outputs reads both outputs of the process, in the order in which they arrive. The poller has that order: Go's own wakes up
// readers in any.
type outputs struct {
	streams [2]*stream
	shown   *shown
	poll    *os.File
	events  syscall.RawConn
	// ready are the numbers of the streams that may have something, in order.
	ready []int
	// stop is closed when reading is to end, done when it has ended.
	stop, done chan struct{}
}

// newOutputs starts reading.
func newOutputs(poll *os.File, stdout, stderr *stream, shown *shown) *outputs {
	o := &outputs{streams: [2]*stream{stdout, stderr}, shown: shown, poll: poll, stop: make(chan struct{}), done: make(chan struct{})}
	// It fails for a closed file only.
	o.events, _ = poll.SyscallConn()
	go o.read()
	return o
}

// newPoll returns a poller of files. An event has the file's number, and comes when there is news.
func newPoll(files ...*os.File) (*os.File, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// It can't fail. Without it, the file would wait for itself in a thread.
	_ = unix.SetNonblock(fd, true)
	poll := os.NewFile(uintptr(fd), "outputs")
	for i, f := range files {
		if err := watch(fd, f, i); err != nil {
			poll.Close()
			return nil, err
		}
	}
	return poll, nil
}

func watch(poll int, f *os.File, number int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(number)}
	// Fd would make reads wait.
	closed := raw.Control(func(fd uintptr) { err = unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, int(fd), &event) })
	return errors.Join(closed, err)
}

func (o *outputs) read() {
	defer close(o.done)
	for open := len(o.streams); open > 0; {
		o.wait()
		if len(o.ready) == 0 {
			continue
		}
		i := o.ready[0]
		o.ready = slices.Delete(o.ready, 0, 1)
		switch isEmpty, err := o.turn(i); {
		case err != nil:
			o.streams[i].end(errors.Is(err, io.EOF))
			open--
		case !isEmpty:
			o.ready = append(o.ready, i)
		}
	}
	o.shown.finish()
}

// turn reads a stream until it is empty, or as much as was in its pipe: all that came before the other one's.
func (o *outputs) turn(i int) (isEmpty bool, err error) {
	for total := 0; total < pipeSize; {
		n, err := o.streams[i].take(i, o.shown)
		if n == 0 || err != nil {
			return true, err
		}
		total += n
	}
	return false, nil
}

// wait adds what is ready, and waits for that if nothing is. When reading is to end, all streams are ready for that.
func (o *outputs) wait() {
	var events [len(o.streams)]unix.EpollEvent
	n := 0
	err := o.events.Read(func(fd uintptr) bool {
		n, _ = ignoringEINTR(func() (int, error) { return unix.EpollWait(int(fd), events[:], 0) })
		return n > 0 || len(o.ready) > 0
	})
	for _, e := range events[:max(n, 0)] {
		o.add(int(e.Fd))
	}
	if err == nil {
		select {
		case <-o.stop:
		default:
			return
		}
	}
	for i, s := range o.streams {
		s.stop()
		o.add(i)
	}
}

func (o *outputs) add(i int) {
	if !o.streams[i].isEnded && !slices.Contains(o.ready, i) {
		o.ready = append(o.ready, i)
	}
}

// addTo adds what was captured to the outcome of a process that was started. It is for after the end.
func (o *outputs) addTo(to *result.Outcome) {
	to.Stdout, to.Stderr = o.streams[0].capture.stream(), o.streams[1].capture.stream()
	o.shown.addTo(to)
	o.streams[0].addRedactions(to, result.RedactedStdout)
	o.streams[1].addRedactions(to, result.RedactedStderr)
}

// finish waits up to limit for the end, and then reads only what is in the pipes. The end doesn't come in time when a process outside of
// the tree holds a pipe, or when the reader gets no processor time.
func (o *outputs) finish(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-o.done:
	case <-t.C:
		close(o.stop)
		_ = o.poll.SetReadDeadline(time.Unix(1, 0))
		<-o.done
	}
	o.poll.Close()
	for _, s := range o.streams {
		s.r.Close()
		s.mirror.finish(limit)
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
