package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

const (
	// stallTimeout is how long a runner may take to answer what a transfer waits for.
	stallTimeout = 5 * time.Minute
	// sumTimeout is that until a file is read, which is summed first.
	sumTimeout = time.Hour
)

// Errors of transfers.
var (
	// ErrManyTransfers says that the runner carries as many files as it may.
	ErrManyTransfers = fmt.Errorf("the session's runner already carries %d files, the most at a time: try again when one has ended", wire.MaxTransfers)

	errTransfer = errors.New("an unexpected message about a transfer")
	errStalled  = errors.New("the session's runner takes too long to answer")
)

// TransferError says why a runner didn't carry a file. Reason is that of a file action, or of a directory that isn't there.
type TransferError struct {
	Reason, Message string
	// Next is the offset of the next byte of an input.
	Next int64
}

func (e *TransferError) Error() string { return e.Reason + ": " + e.Message }

// transfers are those of one connection that haven't ended. The runner sends what it was asked for, and the operator sends what
// the runner has room for, so that a transfer takes wire.MaxUnansweredParts parts of memory at most.
type transfers struct {
	// runner is whose connection it is. Its lock is held for what is open.
	runner *Runner
	// turn has an element while no part is on its way to the runner.
	turn chan struct{}

	last uint64
	open map[uint64]*Transfer
}

func newTransfers(s *Runner) *transfers {
	t := &transfers{runner: s, turn: make(chan struct{}, 1), open: map[uint64]*Transfer{}}
	t.turn <- struct{}{}
	return t
}

// areOpen says whether parts can come.
func (t *transfers) areOpen() bool {
	t.runner.mu.Lock()
	defer t.runner.mu.Unlock()
	return len(t.open) > 0
}

// Transfer is a file that is carried up or down. One goroutine uses it, and closes it at the end.
type Transfer struct {
	of   *transfers
	id   uint64
	kind wire.TransferKind
	// begun is closed when the runner has begun, ended when it has ended.
	begun, ended chan struct{}
	parts        chan *wire.Part
	// room has an element for each part that may be sent.
	room chan struct{}

	// What follows needs the lock. state is what the runner said last, wanted what it was asked for and hasn't
	// sent, sent how many bytes it was sent.
	state       wire.TransferState
	wanted      []wire.Want
	sent        int64
	isBegun     bool
	isAbandoned bool
}

// Transfer begins to carry a file of the session that the runner serves. It returns when the runner has begun, or else with a
// *TransferError. The ID is set here.
func (s *Runner) Transfer(ctx context.Context, m wire.Transfer) (*Transfer, error) {
	if err := m.Check(); err != nil {
		return nil, &TransferError{Reason: result.InvalidRequest, Message: err.Error()}
	}
	t, err := s.transfers.begin(&m)
	if err != nil {
		return nil, err
	}
	timeout := stallTimeout
	if m.Kind == wire.TransferRead {
		timeout = sumTimeout
	}
	_, err = await(ctx, t, timeout, t.begun)
	if errors.Is(err, errHasEnded) && t.failure() == nil {
		// It has done all that it was to do.
		err = nil
	}
	if err != nil {
		t.Close()
		return nil, t.orFailure(err)
	}
	return t, nil
}

func (t *transfers) begin(m *wire.Transfer) (*Transfer, error) {
	t.runner.mu.Lock()
	defer t.runner.mu.Unlock()
	if len(t.open) >= wire.MaxTransfers {
		return nil, ErrManyTransfers
	}
	t.last++
	m.ID = t.last
	if err := t.runner.outbox.send(&wire.Message{Transfer: m}); err != nil {
		return nil, err
	}
	one := &Transfer{
		of: t, id: m.ID, kind: m.Kind, begun: make(chan struct{}), ended: make(chan struct{}),
		parts: make(chan *wire.Part, wire.MaxUnansweredParts), room: make(chan struct{}, wire.MaxUnansweredParts),
	}
	for range wire.MaxUnansweredParts {
		one.room <- struct{}{}
	}
	t.open[m.ID] = one
	return one, nil
}

// takeState takes what the runner says of a transfer. An error says that no honest runner says that.
func (t *transfers) takeState(s *wire.TransferState) error {
	t.runner.mu.Lock()
	defer t.runner.mu.Unlock()
	one := t.open[s.ID]
	if one == nil {
		return errTransfer
	}
	if err := s.Check(); err != nil {
		return err
	}
	before := one.state
	switch {
	case s.Ended:
		delete(t.open, s.ID)
		t.runner.served.used = t.runner.hub.Clock.Now()
		close(one.ended)
	case !one.isBegun && one.kind == wire.TransferRead && s.SHA256 == "":
		return errTransfer
	case !one.isBegun:
		one.isBegun = true
		close(one.begun)
	case !one.isSent() || s.Next <= before.Next || s.Next > one.sent:
		return fmt.Errorf("%w: %d bytes are written of %d", errTransfer, s.Next, one.sent)
	default:
		select {
		case one.room <- struct{}{}:
		default:
			return errTransfer
		}
	}
	one.state = *s
	return nil
}

// isSent says that parts go to the runner.
func (t *Transfer) isSent() bool {
	return t.kind == wire.TransferWrite || t.kind == wire.TransferInput || t.kind == wire.TransferUnpack
}

// takePart takes a part of a file.
func (t *transfers) takePart(p *wire.Part) error {
	t.runner.mu.Lock()
	defer t.runner.mu.Unlock()
	one := t.open[p.ID]
	if one == nil || len(one.wanted) == 0 {
		return errTransfer
	}
	if err := p.Check(); err != nil {
		return err
	}
	w, isLast := one.wanted[0], one.kind == wire.TransferPack && p.End
	if p.Offset != w.Offset || len(p.Payload) > w.Max || len(p.Payload) < w.Max && !isLast {
		return fmt.Errorf("%w: %d bytes at %d, and %d at %d were asked for", errTransfer, len(p.Payload), p.Offset, w.Max, w.Offset)
	}
	one.wanted = one.wanted[1:]
	if one.isAbandoned {
		p.Release()
		return nil
	}
	one.parts <- p // There is room for all that is wanted.
	return nil
}

// errHasEnded says that the runner has ended the transfer.
var errHasEnded = errors.New("the transfer has ended")

// await waits for what comes from a channel. What has come before the transfer's end counts.
func await[T any](ctx context.Context, t *Transfer, timeout time.Duration, from <-chan T) (got T, err error) {
	select {
	case got = <-from:
		return got, nil
	default:
	}
	select {
	case got = <-from:
	case <-t.ended:
		err = errHasEnded
	case <-t.of.runner.gone:
		err = errEnded
	case <-time.After(timeout):
		err = errStalled
	case <-ctx.Done():
		err = ctx.Err()
	}
	return got, err
}

// failure is why the runner has ended the transfer; nil when it has done all, or hasn't ended it.
func (t *Transfer) failure() error {
	t.of.runner.mu.Lock()
	defer t.of.runner.mu.Unlock()
	if t.state.Reason == "" {
		return nil
	}
	return &TransferError{t.state.Reason, t.state.Message, t.state.Next}
}

// orFailure is the runner's reason if there is one.
func (t *Transfer) orFailure(err error) error {
	if failure := t.failure(); failure != nil && errors.Is(err, errHasEnded) {
		return failure
	}
	return err
}

// State is what the runner said last.
func (t *Transfer) State() wire.TransferState {
	t.of.runner.mu.Lock()
	defer t.of.runner.mu.Unlock()
	return t.state
}

// Write adds at most wire.MaxPart bytes to a file that is written, when the runner has room for them. last says that they are
// all: then Finish says what became of the file.
func (t *Transfer) Write(ctx context.Context, p []byte, last bool) error {
	if _, err := await(ctx, t, stallTimeout, t.room); err != nil {
		return t.orFailure(err)
	}
	if _, err := await(ctx, t, stallTimeout, t.of.turn); err != nil {
		return t.orFailure(err)
	}
	t.of.runner.mu.Lock()
	part := &wire.Part{ID: t.id, Offset: t.sent, Bytes: len(p), Payload: p, End: last}
	t.sent += int64(len(p))
	t.of.runner.mu.Unlock()
	giveBack := func() { t.of.turn <- struct{}{} }
	err := t.of.runner.outbox.sendPart(&wire.Message{Part: part}, giveBack)
	if err != nil {
		giveBack()
	}
	return err
}

// Finish waits for the end of a transfer that does what it was to do.
func (t *Transfer) Finish(ctx context.Context) (wire.TransferState, error) {
	if _, err := await[struct{}](ctx, t, stallTimeout, nil); !errors.Is(err, errHasEnded) {
		return wire.TransferState{}, err
	}
	return t.State(), t.failure()
}

// Close has the runner end a transfer that hasn't ended. Its place is taken until then.
func (t *Transfer) Close() {
	t.of.runner.mu.Lock()
	t.isAbandoned = true
	isOpen := t.of.open[t.id] == t
	t.of.runner.mu.Unlock()
	if isOpen {
		_ = t.of.runner.sendOrClose(&wire.Message{CancelTransfer: &wire.CancelTransfer{ID: t.id}})
	}
}
