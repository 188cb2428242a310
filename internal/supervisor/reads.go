package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
)

var errReads = errors.New("the operator asks for output more often than it may")

// reads answers the operator's Reads on one connection. Each has a goroutine; one sends at a time, one frame, so that a result
// or a ping waits for one frame of output at most, whatever is asked for.
type reads struct {
	conn    Conn
	outputs *Outputs
	// ctx ends with the connection, and so do all Reads. Nobody waits for them: one may hang in a disk.
	ctx context.Context
	// turn has an element while nobody sends. Senders get it in the order in which they asked.
	turn chan struct{}

	mu sync.Mutex
	// cancels has the Reads that aren't answered.
	cancels map[uint64]context.CancelFunc
}

func newReads(ctx context.Context, conn Conn, outputs *Outputs) *reads {
	r := &reads{ctx: ctx, conn: conn, outputs: outputs, turn: make(chan struct{}, 1), cancels: map[uint64]context.CancelFunc{}}
	r.turn <- struct{}{}
	return r
}

// cancel ends the waiting of a Read, which is answered soon then.
func (r *reads) cancel(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.cancels[id]; cancel != nil {
		cancel()
	}
}

func (r *reads) start(m *wire.ReadOutput) error {
	if err := m.Check(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// The one that was answered last may still be there.
	if r.cancels[m.ID] != nil || len(r.cancels) > wire.MaxReads {
		return errReads
	}
	ctx, cancel := context.WithCancel(r.ctx)
	r.cancels[m.ID] = cancel
	go func() {
		defer cancel()
		r.answer(ctx, m)
	}()
	return nil
}

// answer sends what was asked for. When the connection breaks meanwhile, nobody waits for it any more.
func (r *reads) answer(ctx context.Context, m *wire.ReadOutput) {
	defer r.forget(m.ID)
	d := &wire.Data{ID: m.ID, Offset: m.Offset}
	stream, err := r.open(ctx, m)
	for left := m.Max; stream != nil && err == nil; left -= d.Bytes {
		if d, err = fill(ctx, m.ID, stream, d.Offset+int64(d.Bytes), left); err != nil {
			break
		}
		if d.Bytes == 0 || d.Bytes == left || isAtEnd(d) {
			break
		}
		if r.inTurn(&wire.Message{Data: d}) != nil {
			return
		}
	}
	d.End, d.Unknown = true, errors.Is(err, output.ErrNotFound)
	_ = r.inTurn(&wire.Message{Data: d})
}

func (r *reads) forget(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cancels, id)
}

// open returns the stream when there is something to say about it; nil when its process isn't started yet.
func (r *reads) open(ctx context.Context, m *wire.ReadOutput) (output.Reader, error) {
	if m.Artifact != "" {
		file := r.outputs.file(m.CallUID, m.Artifact)
		if file == nil {
			return nil, output.ErrNotFound
		}
		return file, nil
	}
	call := r.outputs.get(m.CallUID)
	if call == nil {
		return nil, output.ErrNotFound
	}
	stream, err := call.stream(ctx, output.Stream(m.Stream), m.Follow)
	if err == nil && stream != nil && m.Follow {
		err = stream.Wait(ctx, m.Offset)
	}
	if ctx.Err() != nil {
		// What is known is said in any case.
		err = nil
	}
	return stream, err
}

// fill reads the next part of a stream. There is nothing in it at the end of what there is.
func fill(ctx context.Context, id uint64, stream output.Reader, offset int64, left int) (*wire.Data, error) {
	d := &wire.Data{ID: id, Offset: offset}
	part := make([]byte, min(left, wire.MaxPayload))
	n, err := stream.ReadAt(ctx, part, offset)
	d.Bytes, d.Payload = n, part[:n]
	info := stream.Info()
	d.Total, d.Complete, d.SHA256 = info.Bytes, info.Complete, info.SHA256
	d.MissingStart, d.MissingEnd, d.Lost = info.Missing.Start, info.Missing.End, info.Lost
	var missing *output.MissingError
	switch {
	case ctx.Err() != nil, errors.Is(err, io.EOF), errors.Is(err, output.ErrNoMore), errors.As(err, &missing):
		return d, nil
	case err != nil:
		// A disk that can't be read any more.
		return &wire.Data{ID: id, Offset: offset}, fmt.Errorf("%w: %w", output.ErrNotFound, err)
	default:
		return d, nil
	}
}

// isAtEnd says that nothing follows now.
func isAtEnd(d *wire.Data) bool {
	next := d.Offset + int64(d.Bytes)
	return next >= d.Total || next == d.MissingStart && d.MissingStart < d.MissingEnd
}

// inTurn sends a message after those who wait already.
func (r *reads) inTurn(m *wire.Message) error {
	select {
	case <-r.turn:
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	defer func() { r.turn <- struct{}{} }()
	return r.conn.Send(m)
}
