package supervisor

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// inputWait is how long a process may take to read of its input before the operator is told that it doesn't.
const inputWait = 2 * time.Second

// Inputs has the standard input of background calls that run. How far each has come is known here alone, and outlives
// connections: what is sent again is noticed. A nil Inputs has none.
type Inputs struct {
	mu    sync.Mutex
	calls map[string]*input
}

// NewInputs returns an Inputs without calls.
func NewInputs() *Inputs { return &Inputs{calls: map[string]*input{}} }

// input is the standard input of a call.
type input struct {
	// turn has an element while nobody writes.
	turn chan struct{}
	w    *os.File
	// next is how many bytes were written, isClosed says that no more can be.
	next     int64
	isClosed bool
}

// open makes the input of a call, and returns the process's end of it.
func (i *Inputs) open(uid string) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in := &input{turn: make(chan struct{}, 1), w: write}
	in.turn <- struct{}{}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls[uid] = in
	return read, nil
}

// end forgets the input of a call that has ended.
func (i *Inputs) end(uid string) {
	i.mu.Lock()
	in := i.calls[uid]
	delete(i.calls, uid)
	i.mu.Unlock()
	if in != nil {
		// It also ends a write.
		in.w.Close()
	}
}

func (i *Inputs) get(uid string) *input {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[uid]
}

// input writes the parts that come to the standard input of a call, up to where the process doesn't read on.
func (t *transfer) input() (end wire.TransferState, err error) {
	in := t.files.Inputs.get(t.asked.CallUID)
	if in == nil {
		return end, refused(wire.InputNotFound, "the call isn't running, or its standard input isn't open")
	}
	select {
	case <-in.turn:
		defer func() { in.turn <- struct{}{} }()
	case <-t.ctx.Done():
		return end, t.ctx.Err()
	}
	defer func() { end.Next = in.next }()
	if t.asked.Offset != in.next {
		return end, refused(wire.InputOffset, "the next byte of the input has another offset")
	}
	defer in.stopWith(t.ctx)()
	err = t.receiveParts(func(part *wire.Part) error { return in.write(t.ctx, part.Payload) })
	if err == nil && t.asked.EOF && !in.isClosed {
		in.isClosed = true
		_ = in.w.Close()
	}
	return end, err
}

// stopWith ends a write when the context ends. The caller calls release before somebody else writes.
func (in *input) stopWith(ctx context.Context) (release func()) {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = in.w.SetWriteDeadline(time.Unix(1, 0))
		close(stopped)
	})
	return func() {
		if !stop() {
			<-stopped
		}
	}
}

// write writes what the process reads soon.
func (in *input) write(ctx context.Context, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if in.isClosed {
		return refused(wire.InputClosed, "the standard input was closed before")
	}
	if err := in.w.SetWriteDeadline(time.Now().Add(inputWait)); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	n, err := in.w.Write(p)
	in.next += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refused(wire.InputFull, "the process isn't reading its standard input at the moment")
	default:
		return refused(wire.InputClosed, "the process has ended, or has closed its standard input")
	}
}
