// Package supervisor takes a runner from its start to its end: it connects to the operator, begins with the ToolCall or the
// ToolSession that records it, runs the calls of that, and sends each result until that is acknowledged. It knows nothing of how
// a process is run (Begin) or of Kubernetes beyond that SIGTERM means that the pod goes away.
//
// # A hello is a promise
//
// Before it says the next hello, a runner closes the old connection and discards what it hasn't handled of it. So a hello
// says for certain what the runner has, and nothing comes of an earlier connection any more: no call runs but those that it
// lists.
//
// # Calls
//
// Begin makes a runner that waits the runner of its owner, for good. The runner remembers the UID of each call that it was
// given or told to stop; these are the calls that MaxCalls counts, 16 bytes each. A UID is in one of these states, and never goes back
// to an earlier one:
//
//	unknown       Assign remembers it and starts it; Stop remembers it and makes it one that is never started.
//	running       Assign isn't answered; Stop stops the command. Its end makes it an ended one.
//	ended         The result is sent when it is there, once on each connection, and to answer Assign. A Stop that crosses it
//	              isn't answered. Ack makes it an acknowledged one. Other messages don't.
//	acknowledged  Assign and Stop are answered by Known.
//	never started Assign and Stop are answered by a Result that says that it wasn't started. It isn't kept and needs no
//	              Ack, because it can be asked for again.
//
// A pod of one's own is the case of one call. Its runner takes and remembers no other, saves a copy of the result for the case that
// the pod ends first, and exits when the result is acknowledged, also that of a call that it was told never to start.
//
// A call that comes after the session's end, after MaxCalls, or after SIGTERM isn't started. It is an ended one, with a
// result that says so. Each answer to a message is sent after the state has changed, and the state outlives connections, so
// that it doesn't matter which frames are lost.
//
// The runner is bounded whatever an operator does. It leaves a connection, and goes on with what it has, when the operator
// assigns more calls than may run (MaxConcurrentCalls, and wire.MaxBackgroundCalls beside them) or leaves more results
// unacknowledged than wire.MaxHeldCalls; when it reads less than it asks for; and when it sends a call that the hello
// couldn't carry. No copy of a session's results is saved: there is room for one only. When the process is gone, what it had is lost.
//
// Reading, sending and running are apart: an operator that reads slowly is still heard, and a call that ends
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
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Conn is a connection to the operator that has said hello. Close ends Send and Receive.
type Conn interface {
	Send(*wire.Message) error
	Receive() (*wire.Message, error)
	Close()
}

// Supervisor takes the calls of one runner to their ends.
type Supervisor struct {
	// Dial connects and says hello. serving is what the runner has, nil while it waits.
	Dial func(ctx context.Context, serving *wire.Serving) (Conn, error)
	// Begin prepares for the calls of an owner and returns what runs them.
	Begin func(*wire.Begin) ExecuteFunc
	// Files has the files of a session, and the standard input of its background calls, for transfers; nil for none.
	Files *Executor
	// Outputs has the output of calls, which the operator reads; nil for an empty one.
	Outputs *Outputs
	// SaveCopy saves a copy of the result of a runner's only call where it outlives the process.
	SaveCopy func(*wire.Result)
	// ReconnectTimeout is how long a runner that waits tries to reach an operator before it ends; 0 for no limit.
	ReconnectTimeout time.Duration
	// Log takes a line for the pod's log about the connection; nil for none.
	Log func(string)

	// host is nil while the runner waits.
	host *host
	// logged is the last line: an outage is one line, not one a second.
	logged string
}

var (
	// ErrRefused says that the operator does not want this runner, or no longer wants its call's result.
	ErrRefused = errors.New("refused by the operator")
	// ErrNoOperator says that a runner that waits could not reach an operator within its ReconnectTimeout.
	ErrNoOperator = errors.New("no operator answers, and there is no call to run")

	// errAcknowledged ends the loop: all is done.
	errAcknowledged = errors.New("acknowledged")
	errNotBegun     = errors.New("the operator assigns a call to a runner that hasn't begun")
	// errNotServed says that an operator can't take results now. Another one may.
	errNotServed = errors.New("turned away by the operator")
)

// Bounds of the wait between two attempts to connect. A connection that lasted shorter than the longest wait counts as a
// failed attempt: an operator that turns runners away must not be asked a hundred times a second.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
)

// Run returns nil when nothing more is to be started, and all results are acknowledged. terminate ends when
// the pod is being deleted: what runs is stopped then, and the results are still sent if that is possible. The end of ctx
// ends everything at once.
func (s *Supervisor) Run(ctx, terminate context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.Outputs = cmp.Or(s.Outputs, NewOutputs())
	wait, lastConnected, terminated := firstRetry, time.Now(), terminate.Done()
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
		case errors.Is(err, ErrRefused), ctx.Err() != nil, s.host == nil && terminate.Err() != nil:
			s.giveUp(err)
			return err
		case s.host == nil && s.ReconnectTimeout > 0 && time.Since(lastConnected) > s.ReconnectTimeout:
			return errors.Join(ErrNoOperator, err)
		}
		s.log("connection to the operator: " + err.Error())
		pause(ctx, terminated, wait)
		switch {
		case terminate.Err() == nil:
		case s.host == nil:
			return err
		default:
			terminated = nil
			s.host.end(endOfPod(terminate))
		}
		if s.host.isOver() {
			return nil
		}
		wait = min(2*wait, lastRetry)
	}
}

func (s *Supervisor) log(line string) {
	if s.Log != nil && line != s.logged {
		s.Log(line)
		s.logged = line
	}
}

// pause waits before the next attempt, but not on when the pod is to end.
func pause(ctx context.Context, terminated <-chan struct{}, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-terminated:
	case <-time.After(wait/2 + rand.N(wait)):
	}
}

// giveUp ends what runs, whose results nobody takes. The copy of a result stays where SaveCopy puts it.
func (s *Supervisor) giveUp(cause error) {
	if s.host == nil {
		return
	}
	for _, r := range s.host.abandon(cause) {
		s.log(fmt.Sprintf("the result of call %s (%s) is not recorded: %v", r.CallUID, r.Outcome.Reason, cause))
	}
}
