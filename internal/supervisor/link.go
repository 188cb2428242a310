package supervisor

import (
	"errors"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// link is a connection from which messages are received. broken says why no more come, ended is closed then, and closed by
// the one who handles the messages.
type link struct {
	conn          Conn
	incoming      chan *wire.Message
	broken        chan error
	ended, closed chan struct{}
	reads         *reads
	transfers     *transfers
}

// maxUnhandled is how many messages may wait to be handled. For one call an operator sends only a few in all, but for what it
// asks of its output; of files it sends no more than it was let to.
const maxUnhandled = 8 + 2*wire.MaxReads

// receive reads messages until the connection ends. Nobody has to read the channels for it to end.
func (s *Supervisor) receive(conn Conn) *link {
	l := &link{
		conn: conn, incoming: make(chan *wire.Message, maxUnhandled), broken: make(chan error, 1),
		ended: make(chan struct{}), closed: make(chan struct{}), reads: newReads(conn, s.Outputs),
	}
	l.transfers = newTransfers(l.reads.inTurn, s.Inputs)
	go l.receive(s.session != nil)
	return l
}

// close ends the connection. What wasn't handled is discarded.
func (l *link) close() {
	l.conn.Close()
	close(l.closed)
	l.transfers.stop()
	l.reads.close()
}

func (l *link) receive(inSession bool) {
	defer close(l.ended)
	for {
		m, err := l.conn.Receive()
		if err != nil {
			l.broken <- err
			return
		}
		inSession = inSession || m.Begin != nil
		if !l.pass(m, inSession) {
			l.conn.Close()
			l.broken <- errors.New("the operator sends more than it may")
			return
		}
	}
}

// pass hands a message over. In a session it waits, because the one who handles messages never waits for a Send. Otherwise
// it doesn't: nobody would notice any more that the operator is gone while a Send waits for it.
func (l *link) pass(m *wire.Message, wait bool) bool {
	select {
	case l.incoming <- m:
		return true
	default:
	}
	if !wait {
		return false
	}
	select {
	case l.incoming <- m:
		return true
	case <-l.closed:
		return false
	}
}
