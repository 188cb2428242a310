package host

import (
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// SessionHost is the process that a session records as its runner, as this operator has heard it.
type SessionHost struct {
	Session *v1alpha1.ToolSession
	// Runner is its connection; nil when it isn't connected.
	Runner *dispatch.Runner
	// HasSaidHello says that this operator has heard it. accepted are the calls that it may have got, then.
	HasSaidHello bool
	accepted     map[string]dispatch.HeldCall
}

// FindSessionHost finds the process that a session's calls are handed to; nil when the session records none, or one that
// has none of its calls any more.
func FindSessionHost(hub *dispatch.Hub, session *v1alpha1.ToolSession) *SessionHost {
	bound := session.Status.Runner
	if bound == nil || session.Status.Pod == "" {
		return nil
	}
	h := &SessionHost{Session: session, Runner: hub.RunnerByKey(bound.KeyHash), accepted: map[string]dispatch.HeldCall{}}
	calls, known := hub.Accepted(bound.KeyHash)
	h.HasSaidHello = known
	for _, call := range calls {
		h.accepted[call.UID] = call
	}
	return h
}

// IsServing says that the runner is connected and was told of the session, in the incarnation that is recorded. One that is
// connected and wasn't is to be told first.
func (h *SessionHost) IsServing() bool {
	return h.Runner != nil && Serves(h.Runner, h.Session)
}

// OwnerOf is a session in an incarnation, as its runner is told.
func OwnerOf(session *v1alpha1.ToolSession, incarnation int32) wire.Owner {
	return wire.Owner{Kind: wire.KindSession, UID: string(session.UID), Name: session.Name, Incarnation: incarnation}
}

// Serves says that a runner was told of the session, in the incarnation that is recorded.
func Serves(runner *dispatch.Runner, session *v1alpha1.ToolSession) bool {
	owner, hasBegun := runner.Owner()
	return hasBegun && owner == OwnerOf(session, session.Status.Incarnation)
}

// MayHave says whether the process may have started a call: whether it said that it has the call, or was told of it since.
// One that never said hello to this operator may have what an operator before this one handed over.
func (h *SessionHost) MayHave(callUID types.UID, earlier *EarlierCalls) bool {
	if h == nil {
		return false
	}
	if !h.HasSaidHello {
		return earlier.Has(callUID)
	}
	_, accepted := h.accepted[string(callUID)]
	return accepted
}

// Room is how many more calls a session's runner can be given now.
type Room struct {
	// Calls take the session's turns, Background ones don't.
	Calls, Background int
}

// Room counts what runs.
func (h *SessionHost) Room() Room {
	if h == nil || !h.IsServing() {
		return Room{}
	}
	has := LoadOf(h.Runner)
	if has.Ended >= wire.MaxUnacknowledged {
		return Room{}
	}
	return Room{Calls: max(h.Session.MaxConcurrentCalls()-has.Calls, 0), Background: max(wire.MaxBackgroundCalls-has.Background, 0)}
}

// Load counts the calls that a session's runner runs, those that take the session's turns and those that don't, and those whose results it
// keeps.
type Load struct{ Calls, Background, Ended int }

// LoadOf asks a runner.
func LoadOf(runner *dispatch.Runner) (l Load) {
	for _, call := range runner.HeldCalls() {
		switch isRunning := call.State == dispatch.Assigned || call.State == dispatch.Running; {
		case isRunning && call.Background:
			l.Background++
		case isRunning:
			l.Calls++
		case call.State == dispatch.Ended:
			l.Ended++
		}
	}
	return l
}
