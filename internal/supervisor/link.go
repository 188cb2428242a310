package supervisor

import (
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

// maxUnhandled is how many messages may wait to be handled.
const maxUnhandled = 8 + 2*wire.MaxReads

// receive reads messages until the connection ends. Nobody has to read the channels for it to end.
func (s *Supervisor) receive(conn Conn) *link {
	l := &link{
		conn: conn, incoming: make(chan *wire.Message, maxUnhandled), broken: make(chan error, 1),
		ended: make(chan struct{}), closed: make(chan struct{}), reads: newReads(conn, s.Outputs),
	}
	l.transfers = newTransfers(l.reads.inTurn, s.Inputs)
	go l.receive()
	return l
}

// close ends the connection. What wasn't handled is discarded.
func (l *link) close() {
	l.conn.Close()
	close(l.closed)
	l.transfers.stop()
	l.reads.close()
}

func (l *link) receive() {
	defer close(l.ended)
	for {
		m, err := l.conn.Receive()
		if err != nil {
			l.broken <- err
			return
		}
		// The one who handles messages never waits for a Send.
		select {
		case l.incoming <- m:
		case <-l.closed:
			return
		}
	}
}
