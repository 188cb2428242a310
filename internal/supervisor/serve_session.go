package supervisor

import (
	"context"
	"errors"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// maxUnsent bounds how many messages wait to be sent. An operator that asks for more than it reads is left.
const maxUnsent = 256

var errUnread = errors.New("the operator asks for more than it reads")

// sender sends messages in their order, so that an operator which reads slowly doesn't keep the runner from hearing what it
// says.
type sender struct {
	conn  Conn
	queue chan *wire.Message
	// done is closed when the sender has ended, with the error in failed if there was one.
	done   chan struct{}
	failed chan error
}

func newSender(conn Conn) *sender {
	s := &sender{conn: conn, queue: make(chan *wire.Message, maxUnsent), done: make(chan struct{}), failed: make(chan error, 1)}
	go s.run()
	return s
}

func (s *sender) run() {
	defer close(s.done)
	for m := range s.queue {
		if err := s.conn.Send(m); err != nil {
			s.failed <- err
			return
		}
	}
}

// send queues messages; nil is none.
func (s *sender) send(messages ...*wire.Message) error {
	for _, m := range messages {
		if m == nil {
			continue
		}
		select {
		case s.queue <- m:
		default:
			return errUnread
		}
	}
	return nil
}

// finish lets what is queued leave, unless the connection or the process ends before.
func (s *sender) finish(ctx context.Context, ended <-chan struct{}) {
	close(s.queue)
	select {
	case <-s.done:
	case <-ended:
	case <-ctx.Done():
	}
	s.conn.Close()
	<-s.done
}

// beginSession makes this runner that of a session, for good. From now on the end of the pod stops its calls.
func (s *Supervisor) beginSession(ctx, terminate context.Context, b *wire.Begin) error {
	if err := b.Check(); err != nil {
		return err
	}
	s.session = newSession(ctx, b, s.BeginSession(b), s.Outputs)
	if s.FilesOf != nil {
		s.session.files = s.FilesOf(b)
	}
	context.AfterFunc(terminate, func() {
		_, running := endOfPod(terminate)
		s.session.stop(running)
	})
	return nil
}

// podEnds is why a session's runner starts nothing more when its pod goes away.
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

// dialSession connects, and says what the runner has.
func (s *Supervisor) dialSession(ctx context.Context) (Conn, *wire.Session, error) {
	s.session.catchUp()
	said := s.session.state()
	conn, err := s.DialSession(ctx, said)
	return conn, said, err
}

// serveSession talks over one connection until it breaks or the session is over. said is what the hello said.
func (s *Supervisor) serveSession(ctx, terminate context.Context, l *link, said *wire.Session) error {
	out := newSender(l.conn)
	err := s.talk(ctx, terminate, l, out, said)
	if !errors.Is(err, errAcknowledged) {
		l.conn.Close()
	}
	out.finish(ctx, l.ended)
	return err
}

func (s *Supervisor) talk(ctx, terminate context.Context, l *link, out *sender, said *wire.Session) error {
	if err := out.send(s.session.greeting(said)...); err != nil {
		return err
	}
	terminated := terminate.Done()
	for !s.session.isOver() {
		var answer *wire.Message
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-l.incoming:
			answer, err = s.handleInSession(l, m)
		case e := <-s.session.events:
			answer = s.session.happened(e)
		case err = <-l.broken:
		case err = <-out.failed:
		case <-terminated:
			terminated = nil
			s.session.end(endOfPod(terminate))
		}
		if err == nil {
			err = out.send(answer)
		}
		if err != nil {
			return err
		}
	}
	return errAcknowledged
}

// handleInSession does what the operator says, and returns the answer if there is one now.
func (s *Supervisor) handleInSession(l *link, m *wire.Message) (*wire.Message, error) {
	if isRead, err := l.reads.handle(m); isRead || err != nil {
		return nil, err
	}
	if isTransfer, err := l.transfers.handle(m, s.session.files); isTransfer || err != nil {
		return nil, err
	}
	return s.session.handle(m)
}

// greeting is what follows a hello: the calls that it counts, and the results that are kept.
func (s *session) greeting(said *wire.Session) []*wire.Message {
	var messages []*wire.Message
	for i := range said.Calls {
		messages = append(messages, &wire.Message{Held: &said.Calls[i]})
	}
	for _, c := range s.calls {
		if c.result != nil {
			messages = append(messages, c.answer())
		}
	}
	return messages
}

// catchUp takes what calls said while there was no connection.
func (s *session) catchUp() {
	for {
		select {
		case e := <-s.events:
			s.happened(e)
		default:
			return
		}
	}
}
