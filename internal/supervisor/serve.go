package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// begin makes this runner that of an owner, for good. From now on the end of the pod stops its calls.
func (s *Supervisor) begin(ctx, terminate context.Context, b *wire.Begin) error {
	if err := b.Check(); err != nil {
		return err
	}
	h := newHost(ctx, b, s.Begin(b), s.Outputs)
	switch {
	case b.IsCall():
		h.saveCopy = s.SaveCopy
	case s.Files != nil:
		own := *s.Files
		own.Session, h.files = b, &own
	}
	s.host = h
	context.AfterFunc(terminate, func() {
		_, running := endOfPod(terminate)
		h.stop(running)
	})
	return nil
}

// podEnds is why a runner starts nothing more when its pod goes away.
var podEnds = runner.Stop{Reason: result.PodLost, Message: "the pod was told to end (SIGTERM) before the command was started"}

// Survivors is why a session's pod ends that something of a call is left in: as a cause of Run's terminate.
var Survivors = runner.Stop{Reason: result.PodLost, Message: "the session's pod ends, because processes of another call could not be ended"}

// endOfPod is why nothing is started any more, and why what runs is stopped, when terminate has ended.
func endOfPod(terminate context.Context) (why, running runner.Stop) {
	if errors.Is(context.Cause(terminate), Survivors) {
		return Survivors, Survivors
	}
	return podEnds, podDeleted
}

// podDeleted is why a command ends whose pod goes away. Nobody asked for that: it is a loss, with the output
// so far.
var podDeleted = runner.Stop{Reason: result.PodLost, Message: "the pod was told to end (SIGTERM) while the command ran"}

// connectOnce connects and serves until the connection ends. The connection is closed when it returns, and what wasn't
// handled of it is discarded.
func (s *Supervisor) connectOnce(ctx, terminate context.Context) (connected bool, lasted time.Duration, err error) {
	var said *wire.Serving
	if s.host != nil {
		s.host.catchUp()
		said = s.host.state()
	}
	conn, err := s.Dial(ctx, said)
	if err != nil {
		return false, 0, err
	}
	l := s.open(ctx, conn)
	began := time.Now()
	err = s.talk(ctx, terminate, l, said)
	if errors.Is(err, errAcknowledged) {
		l.flush()
	}
	l.close()
	return true, time.Since(began), err
}

// talk talks over one connection until it breaks or all is done. said is what the hello said.
func (s *Supervisor) talk(ctx, terminate context.Context, l *link, said *wire.Serving) error {
	if err := l.send(s.host.greeting(said)...); err != nil {
		return err
	}
	terminated := terminate.Done()
	for !s.host.isOver() {
		var answer *wire.Message
		var err error
		select {
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		case m := <-l.incoming:
			answer, err = s.handle(ctx, terminate, l, m)
		case e := <-s.host.endsOfCalls():
			answer = e.call.finish(e.result)
		case <-terminated:
			if terminated = nil; s.host == nil {
				return terminate.Err()
			}
			s.host.end(endOfPod(terminate))
		}
		if err == nil {
			err = l.send(answer)
		}
		if err != nil {
			return err
		}
	}
	return errAcknowledged
}

// handle does what the operator says, and returns the answer if there is one now.
func (s *Supervisor) handle(ctx, terminate context.Context, l *link, m *wire.Message) (*wire.Message, error) {
	switch {
	case m.Read != nil:
		return nil, l.reads.start(m.Read)
	case m.CancelRead != nil:
		l.reads.cancel(m.CancelRead.ID)
		return nil, nil
	case s.host == nil:
		return nil, s.handleWaiting(ctx, terminate, m)
	case m.Transfer != nil:
		return nil, l.transfers.start(m.Transfer, s.host.files)
	case m.Want != nil:
		return nil, deliver(m.Want, l.transfers.find(m.Want.ID), func(one *transfer) chan *wire.Want { return one.wants })
	case m.Part != nil:
		return nil, deliver(m.Part, l.transfers.find(m.Part.ID), func(one *transfer) chan *wire.Part { return one.parts })
	case m.CancelTransfer != nil:
		l.transfers.end(m.CancelTransfer.ID)
		return nil, nil
	default:
		return s.host.handle(m)
	}
}

// handleWaiting does what the operator says to a runner that hasn't begun.
func (s *Supervisor) handleWaiting(ctx, terminate context.Context, m *wire.Message) error {
	switch {
	case m.Begin != nil:
		return s.begin(ctx, terminate, m.Begin)
	case m.Refuse != nil:
		return fmt.Errorf("%w: %s", ErrRefused, m.Refuse.Reason)
	case m.Assign != nil:
		return errNotBegun
	}
	return nil
}

// greeting is what follows a hello: the calls that it counts, and the results that are kept.
func (h *host) greeting(said *wire.Serving) []*wire.Message {
	if h == nil {
		return nil
	}
	var messages []*wire.Message
	for i := range said.Calls {
		messages = append(messages, &wire.Message{Held: &said.Calls[i]})
	}
	for _, c := range h.calls {
		if c.result != nil {
			messages = append(messages, c.answer())
		}
	}
	return messages
}

// endsOfCalls is where the results of the calls come.
func (h *host) endsOfCalls() <-chan ended {
	if h == nil {
		return nil
	}
	return h.ends
}

// catchUp takes the results that came while there was no connection.
func (h *host) catchUp() {
	for {
		select {
		case e := <-h.ends:
			e.call.finish(e.result)
		default:
			return
		}
	}
}
