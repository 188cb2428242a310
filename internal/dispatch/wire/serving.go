package wire

import (
	"errors"
	"fmt"
)

// Bounds of the calls that a runner has at a time.
const (
	// MaxConcurrentCalls is how many calls of a session can run at a time, beside MaxBackgroundCalls.
	MaxConcurrentCalls = 16
	MaxBackgroundCalls = 16
	// MaxUnacknowledged is how many results an operator leaves unacknowledged when it assigns another call.
	MaxUnacknowledged = 8
	// MaxHeldCalls is how many calls a runner has that run, or whose results aren't acknowledged.
	MaxHeldCalls = MaxConcurrentCalls + MaxBackgroundCalls + MaxUnacknowledged
	// MaxSessionCalls is how many calls a session can have. The runner remembers them all.
	MaxSessionCalls = 100_000
)

// Owner is the object whose status records a runner.
type Owner struct {
	Kind OwnerKind `json:"kind"`
	UID  string    `json:"uid"`
	Name string    `json:"name"`
	// Incarnation counts the pods of a session, from 1; it is 0 for a call.
	Incarnation int32 `json:"incarnation,omitempty"`
}

// OwnerKind is the kind of an Owner.
type OwnerKind string

// Kinds of owners.
const (
	KindCall    OwnerKind = "ToolCall"
	KindSession OwnerKind = "ToolSession"
)

// IsCall says that the runner takes one call: its owner.
func (o Owner) IsCall() bool { return o.Kind == KindCall }

// IsSession says that the runner takes the calls of a session.
func (o Owner) IsSession() bool { return o.Kind == KindSession }

// Check says why no operator can have recorded a runner there.
func (o Owner) Check() error {
	switch {
	case !isUID(o.UID) || !isObjectName(o.Name):
		return errors.New("invalid UID or name of the runner's owner")
	case o.IsCall() && o.Incarnation == 0, o.IsSession() && o.Incarnation > 0:
		return nil
	default:
		return fmt.Errorf("incarnation %d of a %.64q owns no runner", o.Incarnation, o.Kind)
	}
}

// Begin makes a runner that waits the runner of an owner, which records it durably. The runner ignores a repetition.
type Begin struct {
	Owner
	// MaxCalls is how many calls the runner takes, MaxConcurrentCalls how many of them run at a time; both are 1 for a call.
	MaxCalls           int `json:"maxCalls"`
	MaxConcurrentCalls int `json:"maxConcurrentCalls"`
	// Home is the variable HOME of a session itself; empty when it sets none.
	Home string `json:"home,omitempty"`
}

// BeginCall makes a runner that of a call.
func BeginCall(uid, name string) *Begin {
	return &Begin{Owner: Owner{Kind: KindCall, UID: uid, Name: name}, MaxCalls: 1, MaxConcurrentCalls: 1}
}

// Check says why the runner can't begin.
func (b *Begin) Check() error {
	switch {
	case b.IsCall() && (b.MaxCalls != 1 || b.MaxConcurrentCalls != 1 || b.Home != ""):
		return errors.New("the runner of a call takes that call only")
	case b.MaxCalls < 1 || b.MaxCalls > MaxSessionCalls:
		return fmt.Errorf("a session has 1 to %d calls, this one %d", MaxSessionCalls, b.MaxCalls)
	case b.MaxConcurrentCalls < 1 || b.MaxConcurrentCalls > MaxConcurrentCalls:
		return fmt.Errorf("a session runs 1 to %d calls at a time, this one %d", MaxConcurrentCalls, b.MaxConcurrentCalls)
	}
	return b.Owner.Check()
}

// Serving is what a runner that has begun says in each hello.
type Serving struct {
	Owner
	// Taken is how many UIDs the runner remembers: those of calls that it was given, and of calls that it was told never to
	// start.
	Taken int `json:"taken"`
	// Held is how many Held frames follow the hello, before anything else. Decisions are too large for a frame that is
	// read before its sender is authenticated.
	Held int `json:"held"`
	// Calls are what the Held frames carry: the calls that run or whose results aren't acknowledged, in the order in
	// which they came.
	Calls []Held `json:"-"`
}

// CallState is what a runner has of a call.
type CallState string

// States of a held call.
const (
	// Running says that the call's command was started, or is about to be.
	Running CallState = "Running"
	// Ended says that the runner has the call's result.
	Ended CallState = "Ended"
)

// Held is a call that a runner has.
type Held struct {
	UID      string    `json:"uid"`
	Name     string    `json:"name"`
	State    CallState `json:"state"`
	Decision string    `json:"decision,omitempty"`
	// Background is as the call was assigned.
	Background bool `json:"background,omitempty"`
}

// Known answers an Assign or a Stop: the call's result was acknowledged before.
type Known struct {
	CallUID string `json:"callUID"`
}

// Stop ends a call. One that the runner doesn't know will never be started.
type Stop struct {
	CallUID string `json:"callUID"`
	// Reason is the reason that the result gets: CancelRequested, SessionEnded or PodLost.
	Reason string `json:"reason"`
}

// End has a runner stop what runs, start nothing more, and exit when all results are acknowledged.
type End struct {
	// Reason is why.
	Reason string `json:"reason"`
}

// Check says why the call can't be taken: the runner would be unable to say it back.
func (a *Assignment) Check() error {
	switch {
	case !isUID(a.CallUID) || !isObjectName(a.CallName):
		return errors.New("invalid UID or name of the call")
	case len(a.Decision) > MaxDecision || !isPlain(a.Decision):
		return errors.New("the call's decision is larger than it may be, or isn't sealed")
	}
	return nil
}

const (
	maxUID        = 128
	maxObjectName = 253
)

func isUID(s string) bool { return s != "" && len(s) <= maxUID && isPlain(s) }

func isObjectName(s string) bool { return len(s) <= maxObjectName && isPlain(s) }

// isPlain says whether JSON holds the text as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
