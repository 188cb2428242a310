// Package supervisor is the life of a runner: it connects to the operator, takes one call, runs it, and hands
// over the result until that is acknowledged.
//
// Whatever happens to the connection, a command is started at most once in the life of the process: a second
// assignment is ignored. A result is kept until it is acknowledged, over as many connections as it takes, and
// a copy of it is left behind for the case that the pod ends first. The package knows nothing of how a process
// is run (Execute) or of Kubernetes beyond that SIGTERM means that the pod goes away.
package supervisor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// Conn is a connection to the operator that has said hello.
type Conn interface {
	Send(*wire.Message) error
	Receive() (*wire.Message, error)
	Close()
}

// Supervisor takes one call to its end.
type Supervisor struct {
	// Dial connects and says hello, for the call that this runner has already, if any.
	Dial func(ctx context.Context, call dial.Call) (Conn, error)
	// Execute runs a call. The context's end stops it; a runner.Stop as its cause says why.
	Execute func(context.Context, *wire.Assignment) *wire.Result
	// Leave keeps a copy of the result where it outlives the process.
	Leave func(*wire.Result)
	// Patience is how long a runner without a call looks for an operator before it ends; 0 for as long as it takes.
	Patience time.Duration
	// Log takes a line for the pod's log about the connection; nil for none.
	Log func(string)

	call   dial.Call
	stop   context.CancelCauseFunc
	done   chan *wire.Result
	result *wire.Result
}

// ErrRefused says that the operator does not want this runner.
var ErrRefused = errors.New("refused by the operator")

// ErrAlone says that no operator was found for as long as the runner's patience lasted.
var ErrAlone = errors.New("no operator answers, and there is no call to run")

// errAcknowledged ends the loop: all is done.
var errAcknowledged = errors.New("acknowledged")

// Bounds of the wait between two attempts to connect.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
)

// Run returns nil when the result was acknowledged. terminate ends when the pod is being deleted: the command
// is stopped then, and its result still handed over if that is possible.
func (s *Supervisor) Run(ctx, terminate context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.done = make(chan *wire.Result, 1)
	wait, heard := firstRetry, time.Now()
	for {
		conn, err := s.Dial(ctx, s.call)
		if err == nil {
			wait = firstRetry
			err = s.serve(ctx, terminate, conn)
			conn.Close()
			heard = time.Now()
		}
		if errors.Is(err, errAcknowledged) {
			return nil
		}
		if errors.Is(err, ErrRefused) || (s.call.UID == "" && terminate.Err() != nil) {
			s.abandon(err)
			return err
		}
		s.log(err)
		if s.call.UID == "" && s.Patience > 0 && time.Since(heard) > s.Patience {
			return ErrAlone
		}
		s.pause(ctx, terminate, wait)
		wait = min(2*wait, lastRetry)
	}
}

func (s *Supervisor) log(err error) {
	if s.Log != nil && err != nil {
		s.Log("connection to the operator: " + err.Error())
	}
}

// pause waits before the next attempt, and stops the command meanwhile when the pod is being deleted.
func (s *Supervisor) pause(ctx, terminate context.Context, wait time.Duration) {
	timer := time.NewTimer(wait/2 + rand.N(wait))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-terminate.Done():
		s.stopCommand(podDeleted)
		<-timer.C
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

// abandon ends a command whose result nobody will take.
func (s *Supervisor) abandon(cause error) {
	if s.call.UID == "" || s.result != nil {
		return
	}
	s.stopCommand(runner.Stop{Reason: result.CancelRequested, Message: cause.Error()})
	<-s.done
}

// serve talks over one connection until it breaks or all is done.
func (s *Supervisor) serve(ctx, terminate context.Context, conn Conn) error {
	if s.result != nil {
		if err := conn.Send(&wire.Message{Result: s.result}); err != nil {
			return err
		}
	}
	incoming, broken := receive(conn)
	going := terminate.Done()
	for {
		select {
		case m := <-incoming:
			if err := s.take(ctx, m); err != nil {
				return err
			}
		case err := <-broken:
			return err
		case s.result = <-s.done:
			if err := conn.Send(&wire.Message{Result: s.result}); err != nil {
				return err
			}
		case <-going:
			going = nil
			if s.call.UID == "" {
				return terminate.Err()
			}
			s.stopCommand(podDeleted)
		}
	}
}

// receive reads messages until the connection ends. The channel of errors has room, so that the reader ends
// also when nobody listens any more.
func receive(conn Conn) (<-chan *wire.Message, <-chan error) {
	incoming, broken := make(chan *wire.Message, 8), make(chan error, 1)
	go func() {
		for {
			m, err := conn.Receive()
			if err != nil {
				broken <- err
				return
			}
			select {
			case incoming <- m:
			default:
				broken <- errors.New("the operator sends faster than it is listened to")
				return
			}
		}
	}()
	return incoming, broken
}

// take does what the operator says.
func (s *Supervisor) take(ctx context.Context, m *wire.Message) error {
	switch {
	case m.Assign != nil:
		s.start(ctx, m.Assign)
	case m.Cancel != nil && m.Cancel.CallUID == s.call.UID:
		s.stopCommand(runner.Stop{Reason: result.CancelRequested, Message: "the call was cancelled while its command ran"})
	case m.Ack != nil && s.result != nil && m.Ack.CallUID == s.call.UID:
		return errAcknowledged
	case m.Refuse != nil:
		return errors.Join(ErrRefused, errors.New(m.Refuse.Reason))
	}
	return nil
}

// start runs the call, once in the life of the process.
func (s *Supervisor) start(ctx context.Context, a *wire.Assignment) {
	if s.call.UID != "" {
		return
	}
	s.call = dial.Call{UID: a.CallUID, Name: a.CallName}
	ctx, s.stop = context.WithCancelCause(ctx)
	go func() {
		r := s.Execute(ctx, a)
		// Whether or not the operator can be reached now: the pod may end before it can.
		s.Leave(r)
		s.done <- r
	}()
}
