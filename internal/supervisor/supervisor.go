// Package supervisor takes a runner from its start to its end: it connects to the operator, takes one call, or the calls of
// one session, runs them, and sends each result until that is acknowledged. It knows nothing of how a process is run
// (Execute, BeginSession) or of Kubernetes beyond that SIGTERM means that the pod goes away.
//
// # A hello is a promise
//
// Before it says the next hello, a runner closes the old connection and discards what it hasn't handled of it. So a hello
// says for certain what the runner has, and nothing comes of an earlier connection any more: without a call or a session,
// no command was started; in a session, no call runs but those that it lists.
//
// # One call
//
// Whatever happens to the connection, a command is started at most once in the life of the process: a second assignment is
// ignored. A result is kept until it is acknowledged, over as many connections as it takes, and a copy of it is saved for
// the case that the pod ends first. The runner exits after the acknowledgement.
//
// # A session
//
// Begin makes a runner that waits a session's runner, for good. It can't begin in a runner that has a call. The runner
// remembers the UID of each call that it was given or told to stop; these are the calls that MaxCalls counts, 16 bytes each.
// A UID is in one of these states, which it never goes back from:
//
//	unknown       Assign remembers it and starts it; Stop remembers it and makes it one that is never started.
//	running       Assign is answered by Started, as soon as it has; Stop stops the command. Its end makes it an ended one.
//	ended         The result is sent when it is there, once on each connection, and to answer Assign and Stop. Ack makes
//	              it an acknowledged one. Other messages don't.
//	acknowledged  Assign and Stop are answered by Known.
//	never started Assign and Stop are answered by a Result that says that it wasn't started. It isn't kept and needs no
//	              Ack, because it can be asked for again.
//
// A call that comes after the session's end, after MaxCalls, or after SIGTERM isn't started. It is an ended one, with a
// result that says so. Each answer to a message is sent after the state has changed, and the state outlives connections, so
// that it doesn't matter which frames are lost.
//
// The runner is bounded whatever an operator does. It leaves a connection, and goes on with what it has, when the operator
// assigns more calls than may run (MaxConcurrentCalls, and wire.MaxBackgroundCalls beside them) or leaves more results
// unacknowledged than wire.MaxHeldCalls; when it reads less than it asks for; and when it sends a call that the hello
// couldn't carry. No copy of a result is saved: there is room for one only. When the process is gone, what it had is lost.
//
// Reading, sending and running are apart in a session: an operator that reads slowly is still heard, and a call that ends
// never waits for one that doesn't.
//
// # Output
//
// What a call's process writes, and the files that the call collected, can be read as long as they are kept (Outputs): for one
// call until the runner exits, which is after its result is acknowledged, and not a moment longer for its output. In a session
// the output of ended calls stays until that of all of them takes more than maxEndedDisk on disk or maxEndedMemory in memory,
// when the oldest goes, or until the pod ends.
// It is for the operator alone, which knows who may read.
//
// # Files
//
// The operator carries files of a session up and down (transfers.go). That needs no call. A file that is written appears whole
// or not at all, and nothing is left of one when the connection ends before it has come whole.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// Conn is a connection to the operator that has said hello. Close ends Send and Receive.
type Conn interface {
	Send(*wire.Message) error
	Receive() (*wire.Message, error)
	Close()
}

// Supervisor takes one call to its end.
type Supervisor struct {
	// Dial connects and says hello, for the call that this runner has already, if any.
	Dial func(ctx context.Context, call dial.Call) (Conn, error)
	// DialSession connects and says hello for a session. BeginSession prepares for the calls of one and returns what runs
	// them. A runner without them takes no session.
	DialSession  func(ctx context.Context, session *wire.Session) (Conn, error)
	BeginSession func(*wire.Begin) ExecuteFunc
	// FilesOf has the files of a session, for transfers; without it there are none.
	FilesOf func(*wire.Begin) TransferFiles
	// Outputs has the output of calls, which the operator reads; nil for none.
	Outputs *Outputs
	// Inputs has the standard input of background calls, which the operator writes; nil for none.
	Inputs *Inputs
	// Execute runs a call. The context's end stops it; a runner.Stop as its cause says why.
	Execute func(context.Context, *wire.Assignment) *wire.Result
	// SaveCopy saves a copy of the result where it outlives the process.
	SaveCopy func(*wire.Result)
	// ReconnectTimeout is how long a runner without a call tries to reach an operator before it ends; 0 for no limit.
	ReconnectTimeout time.Duration
	// Log takes a line for the pod's log about the connection; nil for none.
	Log func(string)

	call   dial.Call
	stop   context.CancelCauseFunc
	done   chan *wire.Result
	result *wire.Result
	// session is nil until it begins.
	session *session
	// logged is the last line: an outage is one line, not one a second.
	logged string
}

var (
	// ErrRefused says that the operator does not want this runner, or no longer wants its call's result.
	ErrRefused = errors.New("refused by the operator")
	// ErrNoOperator says that a runner without a call could not reach an operator within its ReconnectTimeout.
	ErrNoOperator = errors.New("no operator answers, and there is no call to run")

	// errAcknowledged ends the loop: all is done.
	errAcknowledged = errors.New("acknowledged")
	// errBusy says that a session can't begin in a runner that has a call.
	errBusy = errors.New("the operator begins a session in a runner that has a call")
	// errNotServed says that an operator can't take a call's result now. Another one may.
	errNotServed = errors.New("turned away by the operator")
)

// Bounds of the wait between two attempts to connect. A connection that lasted shorter than the longest wait counts as a
// failed attempt: an operator that turns runners away must not be asked a hundred times a second.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
)

// Run returns nil when the result was acknowledged, in a session when it has ended and all results were. terminate ends when
// the pod is being deleted: what runs is stopped then, and the results are still sent if that is possible. The end of ctx
// ends everything at once.
func (s *Supervisor) Run(ctx, terminate context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.done = make(chan *wire.Result, 1)
	wait, lastConnected := firstRetry, time.Now()
	for {
		connected, lasted, err := s.connectOnce(ctx, terminate)
		if connected {
			lastConnected = time.Now()
		}
		if lasted >= lastRetry {
			wait = firstRetry
		}
		switch {
		case errors.Is(err, errAcknowledged):
			return nil
		case errors.Is(err, ErrRefused), ctx.Err() != nil, s.isWaiting() && terminate.Err() != nil:
			s.giveUp(err)
			return err
		case s.isWaiting() && s.ReconnectTimeout > 0 && time.Since(lastConnected) > s.ReconnectTimeout:
			return errors.Join(ErrNoOperator, err)
		}
		s.log("connection to the operator: " + err.Error())
		s.pause(ctx, terminate, wait)
		if s.session != nil && s.session.isOver() {
			return nil
		}
		wait = min(2*wait, lastRetry)
	}
}

func (s *Supervisor) hasCall() bool { return s.call.UID != "" }

// isWaiting says that the runner has neither a call nor a session.
func (s *Supervisor) isWaiting() bool { return !s.hasCall() && s.session == nil }

func (s *Supervisor) log(line string) {
	if s.Log != nil && line != s.logged {
		s.Log(line)
		s.logged = line
	}
}

// connectOnce connects and serves until the connection ends. The connection is closed when it returns, and what wasn't
// handled of it is discarded.
func (s *Supervisor) connectOnce(ctx, terminate context.Context) (connected bool, lasted time.Duration, err error) {
	var conn Conn
	said := &wire.Session{}
	if s.session != nil {
		conn, said, err = s.dialSession(ctx)
	} else {
		conn, err = s.Dial(ctx, s.call)
	}
	if err != nil {
		return false, 0, err
	}
	// Before anything is sent: who receives notices when the operator is gone.
	l := s.receive(conn)
	defer l.close()
	began := time.Now()
	if s.session == nil {
		err = s.serve(ctx, terminate, l)
	}
	if s.session != nil {
		err = s.serveSession(ctx, terminate, l, said)
	}
	return true, time.Since(began), err
}

// pause waits before the next attempt. It stops the command meanwhile when the pod is being deleted.
func (s *Supervisor) pause(ctx, terminate context.Context, wait time.Duration) {
	timer := time.NewTimer(wait/2 + rand.N(wait))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-terminate.Done():
		s.stopCommand(podDeleted)
		if s.session != nil {
			s.session.end(endOfPod(terminate))
		}
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// podDeleted is why a command ends whose pod goes away. Nobody asked for that: it is a loss, with the output
// so far.
var podDeleted = runner.Stop{Reason: result.PodLost, Message: "the pod was told to end (SIGTERM) while the command ran"}

func (s *Supervisor) stopCommand(why runner.Stop) {
	if s.stop != nil {
		s.stop(why)
	}
}

// giveUp ends a command whose result nobody takes. The copy of the result stays where SaveCopy puts it.
func (s *Supervisor) giveUp(cause error) {
	if s.session != nil {
		for _, r := range s.session.abandon(cause) {
			s.logUnrecorded(r, cause)
		}
	}
	if !s.hasCall() {
		return
	}
	if s.result == nil {
		s.stopCommand(runner.Stop{Reason: result.CancelRequested, Message: cause.Error()})
		s.result = <-s.done
	}
	s.logUnrecorded(s.result, cause)
}

func (s *Supervisor) logUnrecorded(r *wire.Result, cause error) {
	s.log(fmt.Sprintf("the result of call %s (%s) is not recorded: %v", r.CallUID, r.Outcome.Reason, cause))
}

// serve talks over one connection until it breaks, all is done, or a session begins.
func (s *Supervisor) serve(ctx, terminate context.Context, l *link) error {
	if s.result != nil {
		if err := l.conn.Send(&wire.Message{Result: s.result}); err != nil {
			return err
		}
	}
	terminated := terminate.Done()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-l.incoming:
			if m.Begin != nil && s.BeginSession != nil && s.isWaiting() {
				return s.beginSession(ctx, terminate, m.Begin)
			}
			isRead, err := l.reads.handle(m)
			if !isRead && err == nil {
				err = s.handle(ctx, m)
			}
			if err != nil {
				return err
			}
		case err := <-l.broken:
			return err
		case s.result = <-s.done:
			if err := l.conn.Send(&wire.Message{Result: s.result}); err != nil {
				return err
			}
		case <-terminated:
			terminated = nil
			if !s.hasCall() {
				return terminate.Err()
			}
			s.stopCommand(podDeleted)
		}
	}
}

// handle does what the operator says.
func (s *Supervisor) handle(ctx context.Context, m *wire.Message) error {
	switch {
	case m.Begin != nil && s.hasCall():
		return errBusy
	case m.Assign != nil:
		s.start(ctx, m.Assign)
	case m.Cancel != nil && s.hasCall() && m.Cancel.CallUID == s.call.UID:
		s.stopCommand(runner.Stop{Reason: result.CancelRequested, Message: "the call was cancelled while it ran"})
	case m.Ack != nil && s.result != nil && m.Ack.CallUID == s.call.UID:
		return errAcknowledged
	case m.Refuse != nil && s.hasCall() && m.Refuse.CallUID != s.call.UID:
		// It isn't about the call: the operator speaks another version, or has too many connections.
		return fmt.Errorf("%w: %s", errNotServed, m.Refuse.Reason)
	case m.Refuse != nil:
		return fmt.Errorf("%w: %s", ErrRefused, m.Refuse.Reason)
	}
	return nil
}

// start runs the call, once in the life of the process.
func (s *Supervisor) start(ctx context.Context, a *wire.Assignment) {
	if s.hasCall() {
		return
	}
	s.call = dial.Call{UID: a.CallUID, Name: a.CallName}
	ctx, s.stop = context.WithCancelCause(ctx)
	s.Outputs.begin(a.CallUID)
	go func() {
		r := s.Execute(ctx, a)
		s.Outputs.end(a.CallUID)
		// Whether or not the operator can be reached now: the pod may end before it can.
		s.SaveCopy(r)
		s.done <- r
	}()
}
