package dispatch

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"toolcall.dev/operator/api/v1alpha1"
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
func (s *Session) ToolSession() (ToolSession, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return ToolSession{}, false
	}
	return s.served.ToolSession, true
}

// IsWaiting says that the runner has no call and serves no session.
func (s *Session) IsWaiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served == nil && s.callUID == ""
}

// Taken is how many calls a session's runner has taken: those that it was given, and those that it was told never to
// start.
func (s *Session) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return 0
	}
	return s.served.taken
}

// HeldCalls are the calls that a session's runner has, in the order in which they came.
func (s *Session) HeldCalls() []HeldCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return nil
	}
	return s.served.list()
}

// HeldCall is a call that a session's runner has; false when the runner doesn't have it.
func (s *Session) HeldCall(callUID string) (HeldCall, bool) {
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
func (s *Session) Begin(b *wire.Begin) error {
	if err := b.Check(); err != nil {
		return err
	}
	session := ToolSession{b.SessionUID, b.SessionName, b.Incarnation}
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	again, err := s.begin(session)
	s.mu.Unlock()
	if again || err != nil {
		return err
	}
	s.changed(s, s.objectName(b.SessionName))
	return s.sendOrClose(&wire.Message{Begin: b})
}

// begin needs the lock.
func (s *Session) begin(session ToolSession) (again bool, err error) {
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
func (s *Session) AssignTo(sessionUID string, a *wire.Assignment) error {
	if err := a.CheckSession(); err != nil {
		return err
	}
	if a.Decision == "" {
		return errNoDecision
	}
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	again, err := s.admit(sessionUID, a)
	s.mu.Unlock()
	if again || err != nil {
		return err
	}
	s.changed(s, s.objectName(a.CallName))
	err = s.send(&wire.Message{Assign: a})
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		// It was not sent, and the session goes on.
		s.drop(a.CallUID)
	case err != nil:
		s.close()
	}
	return err
}

// admit needs the lock.
func (s *Session) admit(sessionUID string, a *wire.Assignment) (again bool, err error) {
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
func (s *Session) Stop(callUID, callName, reason string) error {
	s.mu.Lock()
	added, again, err := s.stop(callUID, callName)
	s.mu.Unlock()
	if again || err != nil {
		return err
	}
	if added {
		s.changed(s, s.objectName(callName))
	}
	return s.sendOrClose(&wire.Message{Stop: &wire.Stop{CallUID: callUID, Reason: reason}})
}

// stop needs the lock.
func (s *Session) stop(callUID, callName string) (added, again bool, err error) {
	v, call := s.served, s.served.get(callUID)
	switch {
	case s.over:
		return false, false, errOver
	case v == nil:
		return false, false, errNotServed
	case call == nil && len(v.calls) >= wire.MaxHeldCalls:
		return false, false, ErrNoRoom
	case call == nil:
		v.taken++
		call, added = v.add(HeldCall{UID: callUID, Name: callName, State: Withdrawn}), true
	case call.stopped || call.State == Ended || call.State == Known:
		return false, true, nil
	}
	call.stopped = true
	v.stops++
	return added, false, nil
}

// End tells the runner, once a connection, to stop what runs and to start nothing more. It exits when all results are
// acknowledged.
func (s *Session) End(reason string) error {
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	err := s.markEnding()
	s.mu.Unlock()
	if errors.Is(err, ErrEnding) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.sendOrClose(&wire.Message{End: &wire.End{Reason: reason}})
}

// markEnding needs the lock.
func (s *Session) markEnding() error {
	switch {
	case s.over:
		return errOver
	case s.served == nil:
		return errNotServed
	case s.served.ending:
		return ErrEnding
	}
	s.served.ending = true
	return nil
}

// Pause has a session's runner be given no call, until Unpause or a new connection. It says false, and does nothing, when the
// runner has a call that takes the session's turn.
func (s *Session) Pause() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return false
	}
	for _, call := range s.served.calls {
		if !call.Background && (call.State == Assigned || call.State == Running) {
			return false
		}
	}
	s.served.paused = true
	return true
}

// Unpause ends Pause.
func (s *Session) Unpause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served != nil {
		s.served.paused = false
	}
}

// ackServed says to a session's runner that a result is recorded. A result that is still on its way is acknowledged when
// it arrives.
func (s *Session) ackServed(callUID string) error {
	s.mu.Lock()
	call := s.served.get(callUID)
	switch {
	case call == nil:
		s.mu.Unlock()
		return nil
	case call.State == Known:
		// The runner has nothing to drop.
		s.mu.Unlock()
		s.drop(callUID)
		return nil
	case call.State != Ended:
		s.mu.Unlock()
		return errNotEnded
	case call.result == nil:
		call.discard = true
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	s.drop(callUID)
	return s.sendOrClose(&wire.Message{Ack: &wire.Ack{CallUID: callUID}})
}

// othersOf are the calls of a name that a session's runner has, but for the one with a UID.
func (s *Session) othersOf(name, uid string) []HeldCall {
	return slices.DeleteFunc(s.HeldCalls(), func(call HeldCall) bool { return call.Name != name || call.UID == uid })
}

// dismissCalls has the runner of a session stop the calls of a name, but for the one with a UID, and acknowledges their
// results.
func (s *Session) dismissCalls(name, except string) {
	for _, call := range s.othersOf(name, except) {
		s.discard(call.UID)
		if s.ackServed(call.UID) != nil {
			_ = s.Stop(call.UID, call.Name, v1alpha1.ReasonCancelRequested)
		}
	}
}

// discard has a result acknowledged as soon as it arrives: nobody will take it.
func (s *Session) discard(callUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call := s.served.get(callUID); call != nil {
		call.discard = true
	}
}

// drop forgets a call of a session, and its result.
func (s *Session) drop(callUID string) {
	s.mu.Lock()
	call := s.served.get(callUID)
	if call != nil {
		delete(s.served.calls, callUID)
		call.release()
	}
	s.mu.Unlock()
	if call != nil {
		s.changed(s, s.objectName(call.Name))
	}
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
func (s *Session) TakeNews() News {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return News{}
	}
	n := News{Session: s.served.isNew, Calls: s.served.lost}
	s.served.isNew, s.served.lost = false, nil
	for _, call := range s.served.calls {
		switch {
		case !call.isNew:
			continue
		case call.hasReported():
			n.Ended = append(n.Ended, call.Name)
		default:
			n.Calls = append(n.Calls, call.Name)
		}
		call.isNew = false
	}
	slices.Sort(n.Ended)
	slices.Sort(n.Calls)
	return n
}
