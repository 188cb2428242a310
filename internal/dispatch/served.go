package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// served is what a runner has begun with, and the calls that it has of that. Its users hold the lock of the Runner.
type served struct {
	// Owner is empty while the runner waits.
	wire.Owner
	// calls has the calls by their UID, at most wire.MaxHeldCalls.
	calls map[string]*heldCall
	// came is how many have come.
	came int
	// taken is how many calls the runner had taken when it said hello, and was assigned since.
	taken int
	// ending says that the runner was told to end, paused that it is to be given nothing meanwhile.
	ending, paused bool
	// isAwaited says that a call wasn't assigned because much of what was sent waits to be read.
	isAwaited bool
	// used is when a call that takes the session's turns, or a transfer, was there last, or else when the runner began or connected;
	// lastEnd is when a call ended last, zero when none has.
	used, lastEnd time.Time
}

// heldCall is a call that the runner has, or may have.
type heldCall struct {
	HeldCall
	place int
	// stopped says that the runner was told to stop the call.
	stopped bool
	// hasReported says that the runner has said on this connection how the call ended.
	hasReported bool
	// discard says that nobody will take the result: it is acknowledged when it arrives.
	discard bool
	// result is what nobody has acknowledged, of this connection or of the last one; nil for nothing. releaseResult gives back the memory
	// that it takes of the budget.
	result        *wire.Result
	releaseResult func()
	// releaseDecision gives back the memory that the decision takes; nil when it takes none.
	releaseDecision func()
}

func newServed(owner wire.Owner, now time.Time) served {
	return served{Owner: owner, calls: map[string]*heldCall{}, used: now}
}

// hasBegun says that the runner was given something to do.
func (v *served) hasBegun() bool { return v.Kind != "" }

// takes says whether the call is one of the owner: a ToolCall has no other than itself.
func (v *served) takes(callUID string) bool { return !v.IsCall() || callUID == v.UID }

// add takes a call that the runner doesn't have yet.
func (v *served) add(call wire.Held) *heldCall {
	v.came++
	v.calls[call.UID] = &heldCall{HeldCall: HeldCall{Held: call}, place: v.came}
	return v.calls[call.UID]
}

// list are the calls in the order in which they came.
func (v *served) list() (list []HeldCall) {
	byPlace := func(a, b *heldCall) int { return cmp.Compare(a.place, b.place) }
	for _, call := range slices.SortedFunc(maps.Values(v.calls), byPlace) {
		list = append(list, call.HeldCall)
	}
	return list
}

// Load counts the calls that a runner has.
type Load struct {
	// Foreground and Background run, or are assigned: those that take the session's turns, and those that don't.
	Foreground, Background int
	// Ended aren't acknowledged.
	Ended int
}

// Running are the calls that run, or are assigned.
func (l Load) Running() int { return l.Foreground + l.Background }

func (v *served) load() (l Load) {
	for _, call := range v.calls {
		switch {
		case call.State == Ended:
			l.Ended++
		case call.State == Known:
		case call.Background:
			l.Background++
		default:
			l.Foreground++
		}
	}
	return l
}

// hasRoom says whether the runner may have another call: it keeps the result of each until that is acknowledged.
func (v *served) hasRoom() bool {
	load := v.load()
	canRun := load.Running() < wire.MaxConcurrentCalls+wire.MaxBackgroundCalls
	return canRun && load.Ended < wire.MaxUnacknowledged && len(v.calls) < wire.MaxHeldCalls
}

// mayReport says whether a result can come now.
func (v *served) mayReport() bool {
	for _, call := range v.calls {
		if !call.hasReported {
			return true
		}
	}
	return false
}

// isRemembered says that what the runner had counts when its connection has ended: it alone can have started the calls of its session,
// or its only call, until somebody has recorded how that ended.
func (v *served) isRemembered() bool {
	if v.IsSession() {
		return true
	}
	for _, call := range v.calls {
		if !call.discard {
			return true
		}
	}
	return false
}

// isDone says that the runner had one call, whose result was acknowledged: it exits.
func (v *served) isDone() bool { return v.IsCall() && v.taken > 0 && len(v.calls) == 0 }

// release gives back the memory that a call takes.
func (c *heldCall) release() {
	c.dropResult()
	c.dropDecision()
}

func (c *heldCall) dropResult() {
	if c.result != nil {
		c.releaseResult()
		c.result, c.releaseResult = nil, nil
	}
}

func (c *heldCall) dropDecision() {
	if c.releaseDecision != nil {
		c.releaseDecision()
		c.releaseDecision, c.Decision = nil, ""
	}
}

// drop forgets a call, and its result; nil when it isn't there.
func (v *served) drop(callUID string) *heldCall {
	call := v.calls[callUID]
	if call != nil {
		delete(v.calls, callUID)
		call.release()
	}
	return call
}

// ack drops a call whose result is recorded. One whose result is still on its way is dropped when it arrives.
func (v *served) ack(callUID string) (dropped *heldCall, err error) {
	call := v.calls[callUID]
	switch {
	case call == nil:
		return nil, nil
	case call.State != Ended && call.State != Known:
		return nil, errNotEnded
	case !call.hasReported:
		call.discard = true
		call.dropResult()
		return nil, nil
	}
	return v.drop(callUID), nil
}

// pause has the runner be given no call. It says false, and does nothing, when the runner has one that takes the session's turn.
func (v *served) pause() bool {
	v.paused = v.hasBegun() && v.load().Foreground == 0
	return v.paused
}

// end notes that a call has ended.
func (v *served) end(call *heldCall, now time.Time) {
	if v.lastEnd = now; !call.Background {
		v.used = now
	}
}

// discardOthers has the results of the calls of a name acknowledged as soon as they arrive, but for that of the one with a UID: nobody
// takes them. It returns these calls.
func (v *served) discardOthers(name, uid string) []HeldCall {
	others := slices.DeleteFunc(v.list(), func(call HeldCall) bool { return call.Name != name || call.UID == uid })
	for _, call := range others {
		v.calls[call.UID].discard = true
	}
	return others
}

// continueFrom takes over what was known on the last connection: the results, until they come again, and when a call ended. It returns the
// names of calls that the runner had then and has no more.
func (v *served) continueFrom(last *served) (lost []string) {
	v.lastEnd = last.lastEnd
	for uid, before := range last.calls {
		if call := v.calls[uid]; call != nil {
			call.result, call.releaseResult, before.result = before.result, before.releaseResult, nil
		} else {
			lost = append(lost, before.Name)
		}
	}
	return lost
}

// news is about the owner and all calls.
func (v *served) news() News {
	n := News{Owner: true}
	for _, call := range v.calls {
		if call.hasReported {
			n.Ended = append(n.Ended, call.Name)
		} else {
			n.Calls = append(n.Calls, call.Name)
		}
	}
	return n
}
