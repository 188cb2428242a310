package dispatch

import (
	"errors"
	"fmt"
	"net"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// ToolSession names the session that a runner serves.
type ToolSession struct {
	UID, Name   string
	Incarnation int32
}

// CallState is what is known of a session's call and its runner.
type CallState string

// States of a call that a session's runner has, or may have.
const (
	// Assigned says that the call was handed over on this connection, and that the runner hasn't answered.
	Assigned CallState = "Assigned"
	// Running says that the runner has started the call, or is about to.
	Running CallState = "Running"
	// Withdrawn says that the runner was told not to start a call that it wasn't given on this connection, and that it
	// hasn't answered.
	Withdrawn CallState = "Withdrawn"
	// Ended says that the runner has the call's result. The result may still be on its way.
	Ended CallState = "Ended"
	// Known says that the runner had the call's result, and that it was acknowledged.
	Known CallState = "Known"
)

// HeldCall is a call of a session, as its runner has it: the runner listed it in its hello, or was told of it on this
// connection.
type HeldCall struct {
	UID, Name string
	State     CallState
	// Background is as it was assigned.
	Background bool
	// StartedMicroseconds is when the runner started the call, by its clock; 0 when it hasn't said so on this connection.
	StartedMicroseconds int64
	// Decision is what was decided about the call, sealed. It is empty when there is no memory for it: the result
	// brings it back.
	Decision string
}

// Errors of what a session's runner is told.
var (
	// ErrNoRoom says that the runner has as many calls or results as it may, or has much to read. There is news when a
	// result comes, or when it has read.
	ErrNoRoom = errors.New("the session's runner has as many calls as it may have")
	// ErrEnding says that the runner was told to end its session.
	ErrEnding = errors.New("the session's runner takes no more calls")

	errNotServed  = errors.New("the runner doesn't serve this session")
	errInSession  = errors.New("the runner serves a session")
	errHasCall    = errors.New("the runner was made for a call, or has one")
	errNotEnded   = errors.New("the call has not ended")
	errNoDecision = errors.New("a session's call can't be assigned without its decision")
	errOver       = fmt.Errorf("the runner's connection has ended: %w", net.ErrClosed)
)

// ToolSession is the session that the runner serves; false when it serves none.
func (s *Runner) ToolSession() (ToolSession, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return ToolSession{}, false
	}
	return s.served.ToolSession, true
}

// IsWaiting says that the runner has no call and serves no session.
func (s *Runner) IsWaiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served == nil && s.callUID == ""
}

// Taken is how many calls a session's runner has taken: those that it was given, and those that it was told never to
// start.
func (s *Runner) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return 0
	}
	return s.served.taken
}

// HeldCalls are the calls that a session's runner has, in the order in which they came.
func (s *Runner) HeldCalls() []HeldCall { return inServed(s, (*served).list) }

// HeldCall is a call that a session's runner has; false when the runner doesn't have it.
func (s *Runner) HeldCall(callUID string) (HeldCall, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.served.get(callUID)
	if call == nil {
		return HeldCall{}, false
	}
	return call.HeldCall, true
}

// Begin makes a runner that waits the runner of a session, for good. The caller has recorded durably that this runner,
// by its KeyHash, is the one that runs the session's calls. It is sent once.
func (s *Runner) Begin(b *wire.Begin) error {
	if err := b.Check(); err != nil {
		return err
	}
	session := ToolSession{b.SessionUID, b.SessionName, b.Incarnation}
	s.mu.Lock()
	again, err := s.begin(session)
	if again || err != nil {
		s.mu.Unlock()
		return err
	}
	err = s.sendOrClose(&wire.Message{Begin: b})
	s.mu.Unlock()
	s.changed(s, s.objectName(b.SessionName))
	return err
}

// begin needs the lock.
func (s *Runner) begin(session ToolSession) (again bool, err error) {
	switch {
	case s.over:
		return false, errOver
	case s.served != nil && s.served.ToolSession == session:
		return true, nil
	case s.served != nil:
		return false, errInSession
	case s.call != "" || s.callUID != "":
		return false, errHasCall
	}
	s.served = newServed(session)
	return false, nil
}

// AssignTo hands a call to the runner of its session, unless the runner has it: it listed the call in its hello, or was
// given it on this connection. The caller has recorded durably that this runner, by its KeyHash, is the session's.
func (s *Runner) AssignTo(sessionUID string, a *wire.Assignment) error {
	if err := a.CheckSession(); err != nil {
		return err
	}
	if a.Decision == "" {
		return errNoDecision
	}
	s.mu.Lock()
	again, err := s.admit(sessionUID, a)
	if again || err != nil {
		s.mu.Unlock()
		return err
	}
	err = s.send(&wire.Message{Assign: a})
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		// It was not sent, and the session goes on.
		s.served.drop(a.CallUID)
	case err != nil:
		s.close()
	}
	s.mu.Unlock()
	s.changed(s, s.objectName(a.CallName))
	return err
}

// admit needs the lock.
func (s *Runner) admit(sessionUID string, a *wire.Assignment) (again bool, err error) {
	v := s.served
	switch {
	case s.over:
		return false, errOver
	case v == nil || v.UID != sessionUID:
		return false, errNotServed
	case v.get(a.CallUID) != nil:
		return true, nil
	case v.ending || v.paused:
		return false, ErrEnding
	case !v.hasRoom():
		return false, ErrNoRoom
	case !s.hasRoom():
		v.isAwaited = true
		return false, ErrNoRoom
	}
	v.taken++
	call := v.add(HeldCall{UID: a.CallUID, Name: a.CallName, State: Assigned, Background: a.Background})
	call.Decision, call.releaseDecision = s.keepDecision(a.Decision)
	return false, nil
}

// Stop asks the runner, once a connection, to stop a call of its session, and never to start one that it doesn't have.
// The call's result follows in any case. reason is what the result says.
func (s *Runner) Stop(callUID, callName, reason string) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return errOver
	}
	added, again, err := s.served.stop(callUID, callName)
	s.mu.Unlock()
	if again || err != nil {
		return err
	}
	if added {
		s.changed(s, s.objectName(callName))
	}
	return s.sendOrClose(&wire.Message{Stop: &wire.Stop{CallUID: callUID, Reason: reason}})
}

// End tells the runner, once a connection, to stop what runs and to start nothing more. It exits when all results are
// acknowledged.
func (s *Runner) End(reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return errOver
	case s.served == nil:
		return errNotServed
	case s.served.ending:
		return nil
	}
	s.served.ending = true
	return s.sendOrClose(&wire.Message{End: &wire.End{Reason: reason}})
}

// Pause has a session's runner be given no call, until Unpause or a new connection. It says false, and does nothing, when the
// runner has a call that takes the session's turn.
func (s *Runner) Pause() bool { return inServed(s, (*served).pause) }

// Unpause ends Pause.
func (s *Runner) Unpause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served != nil {
		s.served.paused = false
	}
}

// setKnown notes that the result of a session's call was acknowledged before. It says whether the message was to be expected.
func (s *Runner) setKnown(m *wire.Known) bool {
	s.mu.Lock()
	call := s.served.get(m.CallUID)
	if call == nil || call.State != Assigned && call.State != Withdrawn {
		s.mu.Unlock()
		return false
	}
	call.State, call.isNew = Known, true
	s.served.taken--
	discard := call.discard
	s.served.isNew = s.served.isNew || discard
	s.mu.Unlock()
	if discard {
		_ = s.Ack(m.CallUID)
	}
	return true
}

// setServedResult takes the result of a session's call. It says whether the result was to be expected.
func (s *Runner) setServedResult(r *wire.Result, size int, release func()) bool {
	s.mu.Lock()
	call := s.served.get(r.CallUID)
	if s.over || call == nil || call.result != nil || call.State == Known {
		crossed := s.served.stops > 0
		s.served.stops = max(s.served.stops-1, 0)
		expected := s.over || crossed
		s.mu.Unlock()
		release()
		return expected
	}
	discard := call.discard
	s.served.isNew = s.served.isNew || discard && call.State != Ended
	call.State, call.isNew = Ended, true
	call.result = &heldResult{call: s.objectName(call.Name), result: r, size: size, inSession: true, release: release}
	s.mu.Unlock()
	if discard {
		_ = s.Ack(r.CallUID)
	}
	return true
}

// News is what the reconcilers have to look at because of a session's runner.
type News struct {
	// Session says that the runner has come or gone, or has room again for a call that wasn't assigned.
	Session bool
	// Ended are the names of calls whose end the runner has reported, Calls those of others that it had when it came or
	// went, or has lost.
	Ended, Calls []string
}

// TakeNews is what is new since it was last taken.
func (s *Runner) TakeNews() News { return inServed(s, (*served).takeNews) }
