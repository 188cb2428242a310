package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
)

const (
	// maxFollowing is how many of the unanswered Reads of a connection may be ones that follow, and maxReading how many
	// others. Neither keep the others from being answered.
	maxFollowing = wire.MaxReads / 2
	maxReading   = wire.MaxReads - maxFollowing
)

var (
	errRead  = errors.New("data that nobody asked for")
	errEnded = fmt.Errorf("the connection has ended: %w", net.ErrClosed)
)

// part is what a Read is answered with.
type part struct {
	data []byte
	info output.Info
	// isUnknown says that the runner doesn't have the stream.
	isUnknown bool
}

// reads are the Reads of one connection that aren't answered. An answer never has more than was asked for, and who asks has
// room for that: so what runners send takes no memory that isn't the reader's.
type reads struct {
	// runner is whose connection it is. Its lock is held for what is pending.
	runner *Runner
	// following and reading have an element for each Read that isn't answered.
	following, reading chan struct{}

	last    uint64
	pending map[uint64]*pendingRead
}

// pendingRead is a Read, and what has come.
type pendingRead struct {
	// asked is what is still to come.
	asked wire.ReadOutput
	part
	answered chan struct{}
	// isAbandoned says that nobody waits any more.
	isAbandoned bool
}

func newReads(s *Runner) *reads {
	return &reads{
		runner: s, pending: map[uint64]*pendingRead{},
		following: make(chan struct{}, maxFollowing), reading: make(chan struct{}, maxReading),
	}
}

// slots are those that a Read takes one of.
func (r *reads) slots(m *wire.ReadOutput) chan struct{} {
	if m.Follow {
		return r.following
	}
	return r.reading
}

// ask sends a Read and waits for its answer. It is errEnded when the connection has ended.
func (r *reads) ask(ctx context.Context, m wire.ReadOutput) (part, error) {
	select {
	case r.slots(&m) <- struct{}{}:
	case <-r.runner.gone:
		return part{}, errEnded
	case <-ctx.Done():
		return part{}, ctx.Err()
	}
	p := r.register(&m)
	_ = r.runner.sendOrClose(&wire.Message{Read: &m})
	select {
	case <-p.answered:
		return p.part, nil
	case <-r.runner.gone:
		return part{}, errEnded
	case <-ctx.Done():
		r.abandon(p)
		return part{}, ctx.Err()
	}
}

// register gives the Read its ID.
func (r *reads) register(m *wire.ReadOutput) *pendingRead {
	r.runner.mu.Lock()
	defer r.runner.mu.Unlock()
	r.last++
	m.ID = r.last
	p := &pendingRead{asked: *m, answered: make(chan struct{})}
	r.pending[m.ID] = p
	return p
}

// abandon has a Read answered soon that nobody waits for. Its place is taken until then.
func (r *reads) abandon(p *pendingRead) {
	r.runner.mu.Lock()
	p.isAbandoned, p.data = true, nil
	isPending := r.pending[p.asked.ID] == p
	r.runner.mu.Unlock()
	if isPending {
		_ = r.runner.sendOrClose(&wire.Message{CancelRead: &wire.CancelRead{ID: p.asked.ID}})
	}
}

// areAsked says whether data can come.
func (r *reads) areAsked() bool {
	r.runner.mu.Lock()
	defer r.runner.mu.Unlock()
	return len(r.pending) > 0
}

// take takes what the runner sends. An error says that no honest runner sends that.
func (r *reads) take(d *wire.Data) error {
	r.runner.mu.Lock()
	defer r.runner.mu.Unlock()
	p := r.pending[d.ID]
	if p == nil {
		return errRead
	}
	if err := d.Check(); err != nil {
		return err
	}
	// Abandoned data isn't kept, but counts.
	if left := int64(p.asked.Max); d.Offset != p.asked.Offset || int64(len(d.Payload)) > left {
		return fmt.Errorf("%w: %d bytes at %d, and at most %d at %d were asked for", errRead, len(d.Payload), d.Offset, left, p.asked.Offset)
	}
	p.asked.Offset, p.asked.Max = p.asked.Offset+int64(len(d.Payload)), p.asked.Max-len(d.Payload)
	switch {
	case p.isAbandoned:
	case p.data == nil:
		p.data = d.Payload
	default:
		p.data = append(p.data, d.Payload...)
	}
	if !d.End {
		return nil
	}
	p.isUnknown = d.Unknown
	p.info = output.Info{
		Bytes: d.Total, Complete: d.Complete, SHA256: d.SHA256,
		Missing: output.Range{Start: d.MissingStart, End: d.MissingEnd}, Lost: d.Lost,
	}
	delete(r.pending, d.ID)
	<-r.slots(&p.asked)
	close(p.answered)
	return nil
}
