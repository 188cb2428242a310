package supervisor

import (
	"context"
	"errors"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// link is a connection. What is received, and what is to be sent, waits in channels: an operator that reads slowly doesn't keep the
// runner from hearing what it says.
type link struct {
	conn Conn
	// ctx ends with the connection. Its cause says why.
	ctx                context.Context
	end                context.CancelCauseFunc
	incoming, outgoing chan *wire.Message
	// sent is closed when nothing more is sent.
	sent      chan struct{}
	reads     *reads
	transfers *transfers
}

const (
	// maxUnhandled is how many messages may wait to be handled.
	maxUnhandled = 8 + 2*wire.MaxReads
	// maxUnsent is how many may wait to be sent. An operator that asks for more than it reads is left.
	maxUnsent = 256
)

var errUnread = errors.New("the operator asks for more than it reads")

// open receives and sends until the connection ends, also while nobody handles what was received.
func (s *Supervisor) open(ctx context.Context, conn Conn) *link {
	l := &link{
		conn: conn, incoming: make(chan *wire.Message, maxUnhandled), outgoing: make(chan *wire.Message, maxUnsent), sent: make(chan struct{}),
	}
	l.ctx, l.end = context.WithCancelCause(ctx)
	l.reads = newReads(l.ctx, conn, s.Outputs)
	l.transfers = &transfers{reads: l.reads, running: map[uint64]*transfer{}}
	go l.receiveAll() // it notices when the operator is gone
	go l.sendAll()
	return l
}

func (l *link) receiveAll() {
	for {
		m, err := l.conn.Receive()
		if err != nil {
			l.end(err)
			return
		}
		// The one who handles messages never waits for a Send.
		select {
		case l.incoming <- m:
		case <-l.ctx.Done():
			return
		}
	}
}

func (l *link) sendAll() {
	defer close(l.sent)
	for {
		select {
		case m, isThere := <-l.outgoing:
			if !isThere {
				return
			}
			if err := l.conn.Send(m); err != nil {
				l.end(err)
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// send queues messages, in their order; nil is none.
func (l *link) send(messages ...*wire.Message) error {
	for _, m := range messages {
		if m == nil {
			continue
		}
		select {
		case l.outgoing <- m:
		default:
			return errUnread
		}
	}
	return nil
}

// flush lets what is queued leave, unless the connection ends before. Nothing can be queued any more.
func (l *link) flush() {
	close(l.outgoing)
	select {
	case <-l.sent:
	case <-l.ctx.Done():
	}
}

// close ends the connection. What wasn't handled is discarded.
func (l *link) close() {
	l.conn.Close()
	l.end(nil)
	<-l.sent
}
