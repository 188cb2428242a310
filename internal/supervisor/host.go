package supervisor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// ExecuteFunc runs a call. The context's end stops it; a runner.Stop as its cause says why. It runs several calls at a time.
type ExecuteFunc func(ctx context.Context, a *wire.Assignment) *wire.Result

// host is what a runner that has begun knows. One goroutine has it at a time: that of Run.
type host struct {
	begin   wire.Begin
	execute ExecuteFunc
	outputs *Outputs
	// saveCopy is for the result of a runner's only call; nil for others.
	saveCopy func(*wire.Result)
	// files says what transfers may reach; nil for nothing.
	files *Executor
	// calls run or have an unacknowledged result, in the order in which they came.
	calls []*call
	// taken are the UIDs of all calls that were ever given to the runner, or stopped before, at most begin.MaxCalls. True says that the
	// call must never be started.
	taken map[uidKey]bool
	// ends has room for the results of all calls that run.
	ends chan ended
	// ctx is that of the calls.
	ctx  context.Context
	stop context.CancelCauseFunc
	// ended is why no call is started any more; nil while calls are.
	ended *runner.Stop
}

// call is one that runs or whose result isn't acknowledged.
type call struct {
	held wire.Held
	stop context.CancelCauseFunc
	// result is nil until the call has ended.
	result *wire.Result
}

// ended is a call's result, on its way to the one goroutine that has the host.
type ended struct {
	call   *call
	result *wire.Result
}

// uidKey stands for a UID in 16 bytes, however long it is.
type uidKey [16]byte

func keyOf(uid string) uidKey {
	sum := sha256.Sum256([]byte(uid))
	return uidKey(sum[:16])
}

// Errors that end a connection because of what the operator sent. The next hello says what the runner has.
var (
	errTooMany  = errors.New("the operator assigns more calls than may run, or leaves too many results unacknowledged")
	errMisfit   = errors.New("the operator sends a call that this runner can't run")
	errOtherOne = errors.New("the operator begins another call or session in this runner")
)

func newHost(ctx context.Context, b *wire.Begin, execute ExecuteFunc, outputs *Outputs) *host {
	h := &host{begin: *b, execute: execute, outputs: outputs, taken: map[uidKey]bool{}}
	h.ends = make(chan ended, b.MaxConcurrentCalls+wire.MaxBackgroundCalls)
	h.ctx, h.stop = context.WithCancelCause(ctx)
	return h
}

// state is what the runner says in a hello.
func (h *host) state() *wire.Serving {
	state := &wire.Serving{Owner: h.begin.Owner, Taken: len(h.taken), Held: len(h.calls)}
	for _, c := range h.calls {
		state.Calls = append(state.Calls, c.held)
	}
	return state
}

// isOver says that nothing more is started, and all is acknowledged.
func (h *host) isOver() bool { return h != nil && h.ended != nil && len(h.calls) == 0 }

// end stops what runs, and lets nothing more start.
func (h *host) end(why, running runner.Stop) {
	if h.ended == nil {
		h.ended = &why
	}
	h.stop(running)
}

// handle does what the operator says, and returns the answer if there is one now.
func (h *host) handle(m *wire.Message) (*wire.Message, error) {
	switch {
	case m.Begin != nil && m.Begin.Owner != h.begin.Owner:
		return nil, errOtherOne
	case m.Assign != nil:
		return h.assign(m.Assign)
	case m.Stop != nil:
		return h.stopCall(m.Stop), nil
	case m.Ack != nil:
		h.acknowledge(m.Ack.CallUID)
	case m.End != nil:
		why := endOf(m.End.Reason)
		h.end(why, runner.Stop{Reason: result.CancelRequested, Message: why.Message})
	case m.Refuse != nil && m.Refuse.Final:
		return nil, fmt.Errorf("%w: %s", ErrRefused, m.Refuse.Reason)
	case m.Refuse != nil:
		return nil, fmt.Errorf("%w: %s", errNotServed, m.Refuse.Reason)
	}
	return nil, nil
}

// sessionSuspended is the reason of an end after which the session goes on.
const sessionSuspended = "SessionSuspended"

func endOf(reason string) runner.Stop {
	if reason == sessionSuspended {
		return runner.Stop{Reason: result.SessionEnded, Message: "the session was suspended, which ends its calls"}
	}
	return runner.Stop{Reason: result.SessionEnded, Message: fmt.Sprintf("the session ended: %.64s", reason)}
}

// find returns the call that runs or has a result; nil for others.
func (h *host) find(uid string) *call {
	for _, c := range h.calls {
		if c.held.UID == uid {
			return c
		}
	}
	return nil
}

// mayTake says whether the runner may ever have a call: that of one has no other.
func (h *host) mayTake(uid string) bool { return !h.begin.IsCall() || uid == h.begin.UID }

// assign answers for a call that is known, and starts one that isn't.
func (h *host) assign(a *wire.Assignment) (*wire.Message, error) {
	if c := h.find(a.CallUID); c != nil {
		return c.answer(), nil
	}
	switch isStopped, isKnown := h.taken[keyOf(a.CallUID)]; {
	case isStopped:
		return neverStarted(a.CallUID, a.Decision, stoppedBefore), nil
	case isKnown:
		return &wire.Message{Known: &wire.Known{CallUID: a.CallUID}}, nil
	}
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errMisfit, err)
	}
	if !h.mayTake(a.CallUID) {
		return nil, fmt.Errorf("%w: the call of another pod", errMisfit)
	}
	if !h.hasRoom(a.Background) {
		return nil, errTooMany
	}
	c := &call{held: wire.Held{UID: a.CallUID, Name: a.CallName, State: wire.Running, Decision: a.Decision, Background: a.Background}}
	h.calls = append(h.calls, c)
	refusal := h.ended
	if !h.isFull() {
		// Before it is started, and also when it isn't: after its acknowledgement it is known.
		h.taken[keyOf(a.CallUID)] = false
	} else if refusal == nil {
		refusal = &allTaken
	}
	if refusal != nil {
		return c.finish(neverStarted(a.CallUID, "", *refusal).Result), nil
	}
	h.start(c, a)
	if h.begin.IsCall() {
		h.ended = &allTaken
	}
	return nil, nil
}

var (
	stoppedBefore = runner.Stop{Reason: result.CancelRequested, Message: "the call was stopped before it was assigned"}
	allTaken      = runner.Stop{Reason: result.SessionEnded, Message: "the pod has had all the calls that it may have"}
)

// isFull says that no other UID can be remembered. No call that isn't known may be started then.
func (h *host) isFull() bool { return len(h.taken) >= h.begin.MaxCalls }

// hasRoom says whether another call may be taken.
func (h *host) hasRoom(background bool) bool {
	limit := h.begin.MaxConcurrentCalls
	if background {
		limit = wire.MaxBackgroundCalls
	}
	for _, c := range h.calls {
		if c.result == nil && c.held.Background == background {
			limit--
		}
	}
	return limit > 0 && len(h.calls) < wire.MaxHeldCalls
}

// start runs the call. Its goroutine never waits for the host: ends has room for the result.
func (h *host) start(c *call, a *wire.Assignment) {
	ctx, stop := context.WithCancelCause(h.ctx)
	c.stop = stop
	h.outputs.begin(a.CallUID)
	go func() {
		defer stop(nil)
		r := h.execute(ctx, a)
		h.outputs.end(a.CallUID)
		if h.saveCopy != nil {
			// Whether or not the operator can be reached now: the pod may end before it can.
			h.saveCopy(r)
		}
		h.ends <- ended{c, r}
	}()
}

// finish keeps the result of a call until it is acknowledged.
func (c *call) finish(r *wire.Result) *wire.Message {
	r.Decision = c.held.Decision
	c.result, c.held.State = r, wire.Ended
	return c.answer()
}

// answer is what the operator is told about a call; nil for one that runs.
func (c *call) answer() *wire.Message {
	if c.result == nil {
		return nil
	}
	return &wire.Message{Result: c.result}
}

// stopCall stops a call that runs, and makes sure that one which isn't known never starts.
func (h *host) stopCall(m *wire.Stop) *wire.Message {
	why := stopOf(m.Reason)
	c := h.find(m.CallUID)
	switch isStopped, isKnown := h.taken[keyOf(m.CallUID)]; {
	case c != nil && c.result == nil:
		c.stop(why)
		return nil
	case c != nil:
		// Its result was sent on this connection.
		return nil
	case isStopped:
	case isKnown:
		return &wire.Message{Known: &wire.Known{CallUID: m.CallUID}}
	case h.mayTake(m.CallUID) && !h.isFull():
		h.taken[keyOf(m.CallUID)] = true
	}
	why.Message = "the call was stopped before it was assigned"
	return neverStarted(m.CallUID, "", why)
}

// stopOf is why a call is stopped. The operator gives the reason that the call ends with.
func stopOf(reason string) runner.Stop {
	switch reason {
	case result.SessionEnded:
		return runner.Stop{Reason: reason, Message: "the session ended while the command ran"}
	case result.PodLost:
		return runner.Stop{Reason: reason, Message: "the pod was given up while the command ran"}
	default:
		return runner.Stop{Reason: result.CancelRequested, Message: "the call was cancelled while it ran"}
	}
}

// neverStarted is the result of a call that wasn't started and never will be.
func neverStarted(uid, decision string, why runner.Stop) *wire.Message {
	return &wire.Message{Result: &wire.Result{
		CallUID: uid, Decision: decision, Outcome: result.Outcome{Reason: why.Reason, Message: why.Message},
	}}
}

// acknowledge forgets a result that is recorded. A call's runner that never starts it has nothing more to do then.
func (h *host) acknowledge(uid string) {
	if h.begin.IsCall() && h.taken[keyOf(uid)] {
		h.ended = &stoppedBefore
	}
	h.calls = slices.DeleteFunc(h.calls, func(c *call) bool { return c.held.UID == uid && c.result != nil })
}

// abandon ends what runs when no operator takes results, and returns those that aren't acknowledged.
func (h *host) abandon(cause error) (unrecorded []*wire.Result) {
	h.stop(runner.Stop{Reason: result.CancelRequested, Message: cause.Error()})
	for slices.ContainsFunc(h.calls, func(c *call) bool { return c.result == nil }) {
		e := <-h.ends
		e.call.finish(e.result)
	}
	for _, c := range h.calls {
		unrecorded = append(unrecorded, c.result)
	}
	return unrecorded
}
