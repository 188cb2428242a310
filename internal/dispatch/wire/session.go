package wire

import (
	"errors"
	"fmt"
)

// Bounds of what a runner has of a session's calls at a time.
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

// Begin makes a runner that waits the runner of a session. The operator has recorded durably which runner that is. The
// runner ignores a repetition.
type Begin struct {
	SessionUID  string `json:"sessionUID"`
	SessionName string `json:"sessionName"`
	Incarnation int32  `json:"incarnation"`
	// MaxCalls is how many calls the runner takes, MaxConcurrentCalls how many of them run at a time.
	MaxCalls           int `json:"maxCalls"`
	MaxConcurrentCalls int `json:"maxConcurrentCalls"`
	// Home is the variable HOME of the session itself; empty when it sets none.
	Home string `json:"home,omitempty"`
}

// Check says why a runner can't begin the session.
func (b *Begin) Check() error {
	switch {
	case !isUID(b.SessionUID) || !isObjectName(b.SessionName):
		return errors.New("the session's UID or name isn't one")
	case b.MaxCalls < 1 || b.MaxCalls > MaxSessionCalls:
		return fmt.Errorf("a session has 1 to %d calls, this one %d", MaxSessionCalls, b.MaxCalls)
	case b.MaxConcurrentCalls < 1 || b.MaxConcurrentCalls > MaxConcurrentCalls:
		return fmt.Errorf("a session runs 1 to %d calls at a time, this one %d", MaxConcurrentCalls, b.MaxConcurrentCalls)
	}
	return nil
}

// Session is what a session's runner says in each hello.
type Session struct {
	UID         string `json:"uid"`
	Name        string `json:"name"`
	Incarnation int32  `json:"incarnation"`
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

// Held is a call that a session's runner has.
type Held struct {
	UID      string    `json:"uid"`
	Name     string    `json:"name"`
	State    CallState `json:"state"`
	Decision string    `json:"decision,omitempty"`
	// Background is as the call was assigned.
	Background bool `json:"background,omitempty"`
}

// Started answers an Assign in a session: the call's process runs.
type Started struct {
	CallUID string `json:"callUID"`
	// StartedMicroseconds is when it was started, in microseconds since 1970 by the clock of the runner's machine.
	StartedMicroseconds int64 `json:"startedMicroseconds"`
}

// Known answers an Assign or a Stop in a session: the call's result was acknowledged before.
type Known struct {
	CallUID string `json:"callUID"`
}

// Stop ends a call of a session. One that the runner doesn't know will never be started.
type Stop struct {
	CallUID string `json:"callUID"`
	// Reason is the reason that the result gets: CancelRequested, SessionEnded or PodLost.
	Reason string `json:"reason"`
}

// End ends a session: the runner stops what runs, starts nothing more, and exits when all results are acknowledged.
type End struct {
	// Reason is why the session ends.
	Reason string `json:"reason"`
}

// CheckSession says why the call can't be taken in a session: the runner would be unable to say it back.
func (a *Assignment) CheckSession() error {
	switch {
	case !isUID(a.CallUID) || !isObjectName(a.CallName):
		return errors.New("the call's UID or name isn't one")
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
