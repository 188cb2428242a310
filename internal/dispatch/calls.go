package dispatch

import (
	"errors"
	"fmt"
	"net"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// CallState is what is known of a call and its runner: what the runner says, or else what it was told.
type CallState = wire.CallState

// States of a call that a runner has, or may have.
const (
	// Assigned says that the call was handed over on this connection.
	Assigned CallState = "Assigned"
	// Running says that the runner listed the call in its hello: it has started it, or is about to.
	Running = wire.Running
	// Ended says that the runner has the call's result. The result may still be on its way.
	Ended = wire.Ended
	// Known says that the runner had the call's result, and that it was acknowledged.
	Known CallState = "Known"
)

// HeldCall is a call as its runner has it: the runner listed it in its hello, or was told of it on this
// connection. Its Decision is empty when there is no memory for it: the result brings it back.
type HeldCall struct {
	wire.Held
	// IsRecorded says that the call's result is recorded, and isn't acknowledged yet: the runner is still needed.
	IsRecorded bool
}

// HasEnded says that the runner has, or had, the call's result.
func (c HeldCall) HasEnded() bool { return c.State == Ended || c.State == Known }

// Errors of what a runner is told.
var (
	// ErrNoRoom says that the runner has as many calls or results as it may, or has much to read. There is news when a
	// result comes, or when it has read.
	ErrNoRoom = errors.New("the runner has as many calls as it may have")
	// ErrEnding says that the runner was told to end, or is paused.
	ErrEnding = errors.New("the runner takes no more calls")

	errNotServed  = errors.New("the runner serves something else")
	errMadeFor    = errors.New("the runner was made for another call")
	errNotEnded   = errors.New("the call has not ended")
	errNotHeld    = errors.New("the runner doesn't have the call")
	errNoDecision = errors.New("a session's call can't be assigned without its decision")
	errOver       = fmt.Errorf("the runner's connection has ended: %w", net.ErrClosed)
)

// Taken is how many calls the runner has taken.
func (s *Runner) Taken() int { return inServed(s, func(v *served) int { return v.taken }) }

// Load counts the calls that the runner has.
func (s *Runner) Load() Load { return inServed(s, (*served).load) }

// HeldCalls are the calls that the runner has, in the order in which they came.
func (s *Runner) HeldCalls() []HeldCall { return inServed(s, (*served).list) }

// HeldCall is a call that the runner has; false when the runner doesn't have it.
func (s *Runner) HeldCall(callUID string) (HeldCall, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.served.calls[callUID]
	if call == nil {
		return HeldCall{}, false
	}
	return call.HeldCall, true
}

// ResultOf is what the runner reported about a call, or nil. It takes a part of the budget of all results until Ack or Record.
func (s *Runner) ResultOf(callUID string) *wire.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call := s.served.calls[callUID]; call != nil {
		return call.result
	}
	return nil
}

// Begin makes a runner that waits the runner of an owner, for good. The caller has recorded durably that this runner,
// by its KeyHash, is the owner's. It is sent once.
func (s *Runner) Begin(b *wire.Begin) error {
	s.mu.Lock()
	again, err := s.begin(b)
	s.mu.Unlock()
	if again || err != nil {
		return err
	}
	s.hub.reindex(s, b.Kind, b.Name)
	s.hub.reindex(s, wire.KindCall, s.hello.Call)
	return nil
}

// begin needs the lock.
func (s *Runner) begin(b *wire.Begin) (again bool, err error) {
	switch {
	case s.over:
		return false, errOver
	case s.served.hasBegun() && s.served.Owner == b.Owner:
		return true, nil
	case s.served.hasBegun():
		return false, errNotServed
	case s.hello.Call != "" && (b.IsSession() || b.Name != s.hello.Call):
		return false, errMadeFor
	}
	if err := b.Check(); err != nil {
		return false, err
	}
	s.served = newServed(b.Owner, s.hub.Clock.Now())
	return false, s.sendOrClose(&wire.Message{Begin: b})
}

// Assign hands a call to the runner of its owner, unless the runner has it: it listed the call in its hello, or was
// given it on this connection. The caller has recorded durably that this runner, by its KeyHash, is the owner's.
func (s *Runner) Assign(ownerUID string, a *wire.Assignment) error {
	if err := a.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	again, err := s.admit(ownerUID, a)
	if again || err != nil {
		s.mu.Unlock()
		return err
	}
	err = s.send(&wire.Message{Assign: a})
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		// It was not sent, and the runner goes on.
		s.served.drop(a.CallUID)
		s.served.taken--
	case err != nil:
		s.close()
	}
	s.mu.Unlock()
	s.hub.reindex(s, wire.KindCall, a.CallName)
	return err
}

// admit needs the lock.
func (s *Runner) admit(ownerUID string, a *wire.Assignment) (again bool, err error) {
	v := &s.served
	switch {
	case s.over:
		return false, errOver
	case !v.hasBegun() || v.UID != ownerUID || !v.takes(a.CallUID):
		return false, errNotServed
	case v.IsSession() && a.Decision == "":
		return false, errNoDecision
	case v.calls[a.CallUID] != nil:
		return true, nil
	case v.ending || v.paused:
		return false, ErrEnding
	case !v.hasRoom():
		return false, ErrNoRoom
	case !s.outbox.hasRoom():
		v.isAwaited = true
		return false, ErrNoRoom
	}
	v.taken++
	call := v.add(wire.Held{UID: a.CallUID, Name: a.CallName, State: Assigned, Background: a.Background})
	call.Decision, call.releaseDecision = s.results.keepDecision(s.hello.Namespace, a.Decision)
	return false, nil
}

// Ack tells the runner that a call's result is recorded. One whose result is still on its way is acknowledged when it arrives.
func (s *Runner) Ack(callUID string) error {
	s.mu.Lock()
	dropped, err := s.served.ack(callUID)
	s.mu.Unlock()
	if dropped == nil {
		return err
	}
	s.hub.reindex(s, wire.KindCall, dropped.Name)
	if dropped.State == Known {
		// The runner has nothing to drop.
		return nil
	}
	return s.sendOrClose(&wire.Message{Ack: &wire.Ack{CallUID: callUID}})
}

// Record notes that a call's result is recorded where the runner is still needed: it isn't acknowledged yet.
func (s *Runner) Record(callUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call := s.served.calls[callUID]; call != nil {
		call.IsRecorded = true
		call.release()
	}
}

// Stop asks the runner, once a connection, to stop a call that it has. The call's result follows in any case. reason is what the
// result says.
func (s *Runner) Stop(callUID, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.served.calls[callUID]
	switch {
	case s.over:
		return errOver
	case call == nil:
		return errNotHeld
	case call.stopped || call.HasEnded():
		return nil
	}
	call.stopped = true
	return s.sendOrClose(&wire.Message{Stop: &wire.Stop{CallUID: callUID, Reason: reason}})
}

// dismiss has the calls of a name stopped, but for the one with the UID except, and acknowledges their results. That these leave
// room is news for the owner: nobody looks at the calls any more.
func (s *Runner) dismiss(name, except string) {
	makesRoom := false
	for _, held := range inServed(s, func(v *served) []HeldCall { return v.discardOthers(name, except) }) {
		makesRoom = makesRoom || held.HasEnded()
		if s.Ack(held.UID) != nil {
			_ = s.Stop(held.UID, v1alpha1.ReasonCancelRequested)
		}
		// After the end of the connection it isn't acknowledged.
		s.releaseResult(held.UID)
	}
	if makesRoom {
		s.hub.notify(s, News{Owner: true})
	}
}

// End tells the runner, once a connection, to stop what runs and to start nothing more. It exits when all results are
// acknowledged.
func (s *Runner) End(reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return errOver
	case !s.served.hasBegun():
		return errNotServed
	case s.served.ending:
		return nil
	}
	s.served.ending = true
	return s.sendOrClose(&wire.Message{End: &wire.End{Reason: reason}})
}

// Pause has the runner be given no call, until Unpause or a new connection. It says false, and does nothing, when the
// runner has a call that takes the session's turn, or has another connection, on which it may.
func (s *Runner) Pause() bool {
	return inServed(s, func(v *served) bool { return !s.over && v.pause() })
}

// IdleSince is since when the runner has neither a call that takes the session's turns nor a file or input that is on its way; false
// while it has one. What was before the runner connected isn't known.
func (s *Runner) IdleSince() (since time.Time, isIdle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.served.hasBegun() || s.served.load().Foreground > 0 || len(s.transfers.open) > 0 {
		return time.Time{}, false
	}
	return s.served.used, true
}

// Unpause ends Pause.
func (s *Runner) Unpause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served.paused = false
}

// errUnexpected is about what no runner sends.
var errUnexpected = errors.New("a message about a call that the runner doesn't have, or has reported")

// setKnown notes that the result of a call was acknowledged before. It says what is new.
func (s *Runner) setKnown(m *wire.Known) (News, error) {
	s.mu.Lock()
	call := s.served.calls[m.CallUID]
	if call == nil || call.State != Assigned {
		s.mu.Unlock()
		return News{}, errUnexpected
	}
	call.State, call.hasReported = Known, true
	s.served.end(call, s.hub.Clock.Now())
	s.served.taken--
	discard := call.discard
	s.mu.Unlock()
	if discard {
		// Nobody looks at the call any more, and it leaves its place.
		_ = s.Ack(m.CallUID)
		return News{Owner: true}, nil
	}
	return News{Ended: []string{call.Name}}, nil
}

// setResult takes the result of a call. It says what is new.
func (s *Runner) setResult(r *wire.Result, release func()) (news News, err error) {
	s.mu.Lock()
	call := s.served.calls[r.CallUID]
	if s.over || call == nil || call.hasReported {
		if !s.over {
			err = errUnexpected
		}
		s.mu.Unlock()
		release()
		return News{}, err
	}
	discard := call.discard
	call.State, call.hasReported = Ended, true
	s.served.end(call, s.hub.Clock.Now())
	call.dropResult()
	if call.IsRecorded || discard {
		// Somebody else ended the call.
		release()
	} else {
		call.result, call.releaseResult = r, release
		news.Ended = []string{call.Name}
	}
	s.mu.Unlock()
	if discard {
		_ = s.Ack(r.CallUID)
		news.Owner = true
	}
	return news, nil
}

// News is what the reconcilers have to look at because of a runner.
type News struct {
	// Owner says that the runner has come or gone, or has room again for a call that wasn't assigned: also because a call has ended
	// which nobody looks at any more.
	Owner bool
	// Ended are the names of calls whose end the runner has reported, Calls those of others that it had when it came or
	// went, or has lost.
	Ended, Calls []string
}
