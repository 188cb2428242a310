package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// served is the session that a runner serves, and what the runner has of it. A nil one has nothing. Its users hold the
// lock of the Session.
type served struct {
	ToolSession
	// calls has the calls by their UID, at most wire.MaxHeldCalls.
	calls map[string]*heldCall
	// came is how many have come.
	came int
	// taken is how many calls the runner had taken when it said hello, and was assigned or told never to start since.
	taken int
	// stops counts the Stops that may be answered by a result that came already.
	stops int
	// ending says that the runner was told to end, paused that it is to be given nothing meanwhile.
	ending, paused bool
	// isNew says that there is news for the session, and nobody has taken it: also that a call has ended which nobody looks at
	// any more, and left its place.
	isNew bool
	// isAwaited says that a call wasn't assigned because much of what was sent waits to be read.
	isAwaited bool
	// lost are the names of calls that the runner had on its last connection and doesn't list: it never started them. They
	// are news.
	lost []string
}

// heldCall is a call that the runner has, or may have.
type heldCall struct {
	HeldCall
	place int
	// stopped says that the runner was told to stop the call.
	stopped bool
	// discard says that nobody will take the result: it is acknowledged when it arrives.
	discard bool
	isNew   bool
	result  *heldResult
	// releaseDecision gives back the memory that the decision takes; nil when it takes none.
	releaseDecision func()
}

func newServed(session ToolSession) *served {
	return &served{ToolSession: session, calls: map[string]*heldCall{}}
}

func (v *served) get(callUID string) *heldCall {
	if v == nil {
		return nil
	}
	return v.calls[callUID]
}

// add takes a call that the runner doesn't have yet.
func (v *served) add(call HeldCall) *heldCall {
	v.came++
	v.calls[call.UID] = &heldCall{HeldCall: call, place: v.came}
	return v.calls[call.UID]
}

// inOrder are the calls in the order in which they came.
func (v *served) inOrder() []*heldCall {
	calls := make([]*heldCall, 0, len(v.calls))
	for _, call := range v.calls {
		calls = append(calls, call)
	}
	slices.SortFunc(calls, func(a, b *heldCall) int { return cmp.Compare(a.place, b.place) })
	return calls
}

func (v *served) list() []HeldCall {
	var list []HeldCall
	for _, call := range v.inOrder() {
		list = append(list, call.HeldCall)
	}
	return list
}

// acceptedOf are the calls that a runner which has these may have started. One that it was only told not to start isn't
// among them: what was sent on earlier connections is in its hello, or was never handled.
func acceptedOf(calls []HeldCall) (accepted []HeldCall) {
	for _, call := range calls {
		if call.State != Withdrawn {
			accepted = append(accepted, call)
		}
	}
	return accepted
}

// hasRoom says whether the runner may have another call: it keeps the result of each until that is acknowledged.
func (v *served) hasRoom() bool {
	running, ended := 0, 0
	for _, call := range v.calls {
		switch call.State {
		case Assigned, Running:
			running++
		case Ended:
			ended++
		case Withdrawn, Known:
		}
	}
	return running < wire.MaxConcurrentCalls+wire.MaxBackgroundCalls && ended < wire.MaxUnacknowledged && len(v.calls) < wire.MaxHeldCalls
}

// mayReport says whether a result can come now.
func (v *served) mayReport() bool {
	if v.stops > 0 {
		return true
	}
	for _, call := range v.calls {
		if !call.hasReported() {
			return true
		}
	}
	return false
}

// markAll has all that the runner has looked at.
func (v *served) markAll() {
	v.isNew = true
	for _, call := range v.calls {
		call.isNew = true
	}
}

// hasReported says that the runner has said how the call ended, and nobody has acknowledged it.
func (c *heldCall) hasReported() bool { return c.result != nil || c.State == Known }

// release gives back the memory that a call takes.
func (c *heldCall) release() {
	if c.result != nil {
		c.result.release()
		c.result = nil
	}
	if c.releaseDecision != nil {
		c.releaseDecision()
		c.releaseDecision, c.Decision = nil, ""
	}
}

// hold takes a call that follows the hello of a session's runner.
func (s *Session) hold(h *wire.Held) error {
	state, ok := map[wire.CallState]CallState{wire.Running: Running, wire.Ended: Ended}[h.State]
	switch {
	case !isUID(h.UID):
		return fmt.Errorf("a held call's UID, %.64q, is not a UID", h.UID)
	case len(validation.IsDNS1123Subdomain(h.Name)) > 0:
		return fmt.Errorf("a held call's name, %.64q, is not a DNS subdomain", h.Name)
	case !ok:
		return fmt.Errorf("a held call is neither %s nor %s", wire.Running, wire.Ended)
	case len(h.Decision) > wire.MaxDecision:
		return errors.New("a held call's decision is larger than it may be")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served.get(h.UID) != nil {
		return fmt.Errorf("call %s is held twice", h.UID)
	}
	call := s.served.add(HeldCall{UID: h.UID, Name: h.Name, State: state, Background: h.Background})
	call.Decision, call.releaseDecision = s.keepDecision(h.Decision)
	return nil
}

// setStarted notes that a call was started. It says whether the message was to be expected.
func (s *Session) setStarted(m *wire.Started) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.served.get(m.CallUID)
	if call == nil || call.State != Assigned && call.State != Running || call.StartedMicroseconds != 0 {
		return false
	}
	call.State, call.StartedMicroseconds = Running, max(m.StartedMicroseconds, 1)
	return true
}

// setKnown notes that a call's result was acknowledged before. It says whether the message was to be expected.
func (s *Session) setKnown(m *wire.Known) bool {
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
		s.drop(m.CallUID)
	}
	return true
}

// setServedResult takes the result of a session's call. It says whether the result was to be expected.
func (s *Session) setServedResult(r *wire.Result, size int, release func()) bool {
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
		_ = s.ackServed(r.CallUID)
	}
	return true
}

// remind has the calls looked at whose end nobody has taken. It says whether there are any.
func (s *Session) remind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return false
	}
	found := false
	for _, call := range s.served.calls {
		if call.hasReported() {
			call.isNew, found = true, true
		}
	}
	return found
}

// markRoom has the session looked at when a call waits for the runner to read. It says whether one does.
func (s *Session) markRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil || !s.served.isAwaited {
		return false
	}
	s.served.isAwaited, s.served.isNew = false, true
	return true
}

// markLost has the calls looked at that the runner had before, and has no more.
func (s *Session) markLost(before []HeldCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return
	}
	for _, call := range before {
		if s.served.get(call.UID) == nil {
			s.served.lost = append(s.served.lost, call.Name)
		}
	}
}

// markNew has all looked at that a session's runner has.
func (s *Session) markNew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served != nil {
		s.served.markAll()
	}
}
