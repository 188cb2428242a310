// Package dispatch is the operator's end of the connections that runners open.
//
// The Server accepts connections, checks who is there, and keeps one Runner for each Job whose runner is
// connected in the Hub. It is an observation, like an object in a cache: what the runner said, for
// the reconcilers to look at, and a few verbs for them to use (Begin, Assign, Stop, Ack, End, Refuse). Nothing here
// decides what runs, and nothing here is kept that a runner that dials in again doesn't bring back.
//
// Two things prove who a runner is. The token, which only its pod was given and which opens the first
// connection; and the key of its TLS certificate, which exists in that process's memory alone. The
// reconciler records the key's hash in the runner's owner, a ToolCall or a ToolSession, before the runner begins, so that
// afterwards the token alone is worth nothing.
//
// # Calls
//
// The Runner holds what its process has, by the call's UID (HeldCall): of a ToolCall that one call, of a ToolSession many.
//
//	its hello lists a call              Running, Ended
//	Assign                              Assigned; Ended with its result
//	Stop                                no change: the result follows
//	it answers Known                    Known: the result was acknowledged before
//	Record                              no change: the result is dropped, also when it comes later
//	Ack                                 dropped, with the result; at once when the result comes later
//
// Each of these is sent once a connection, so that a pass over a call can be repeated. A runner is served when all the
// calls that its hello announces have come. What it says then replaces what was known of it: a call that was assigned
// on an earlier connection and isn't listed was never started, and is assigned again.
//
// When the connection ends, the Runner is kept as it was, with the results (Result) and with the list of what the runner had (Accepted):
// should it never come back, only these calls can have been started by it. Another operator knows no such list until it hears the
// runner's hello. That of a session goes when the session has another runner or is gone (Forget, DismissSession, the sweep), that of a call
// when the call has ended or is gone (Release, Dismiss, the sweep). Until then, no earlier hello of the process counts that comes late.
//
// News says who has to look: a result is for its call, a runner that comes or goes for its owner and the calls it had.
// Only Dismiss stops calls that are gone, after somebody has read that past the cache: that the cache
// doesn't have a call says nothing.
//
// # Bounds
//
// A runner has at most wire.MaxHeldCalls calls, and is assigned none while wire.MaxUnacknowledged results aren't
// acknowledged or much of what it was sent waits to be read (ErrNoRoom). Each result takes its part of the budget of its
// namespace until it is acknowledged or released, also when its runner connects again and sends it again. So do decisions: where their
// budget is used up, HeldCall.Decision is empty, and the result brings the decision back.
package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Hub holds the runners that are connected now, by the UID of their Job, and what is still to be known of those that were.
type Hub struct {
	// Clock tells when runners were last used: the machine's, unless another one is set before a runner connects.
	Clock  clock.PassiveClock
	notify func(*Runner, News)

	mu      sync.Mutex
	since   time.Time
	runners map[string]*Runner
	// processes has the last connection of each runner, by the hash of its key: of those that aren't connected as long as isRemembered.
	processes map[string]*Runner
	objects   index
	// connections counts those that came.
	connections uint64
}

// NewHub makes a hub that calls notify, without holding a lock, whenever a runner has something new.
func NewHub(notify func(*Runner, News)) *Hub {
	return &Hub{
		Clock: clock.RealClock{}, notify: notify, runners: map[string]*Runner{}, processes: map[string]*Runner{}, objects: index{},
	}
}

// ReconnectWait is how long runners may take to dial in, after they can reach an operator or lost their connection.
const ReconnectWait = 15 * time.Second

// Listening says that runners can reach this operator from now on.
func (h *Hub) Listening(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
}

// Since is when runners could first reach this operator; zero when they can't yet.
func (h *Hub) Since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

// Runner returns a Job's runner, or nil.
func (h *Hub) Runner(jobUID string) *Runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runners[jobUID]
}

// RunnerByKey returns the runner that proved to hold a key, or nil.
func (h *Hub) RunnerByKey(keyHash string) *Runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.processes[keyHash]; s != nil && h.isConnected(s) {
		return s
	}
	return nil
}

// arrivalPause is the interval at which a reader looks for the runner that it waits for.
const arrivalPause = 50 * time.Millisecond

// awaitRunner returns the runner that holds a key, if it comes back within ReconnectWait.
func (h *Hub) awaitRunner(ctx context.Context, keyHash string) (*Runner, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ReconnectWait, ErrAway)
	defer cancel()
	for {
		if s := h.RunnerByKey(keyHash); s != nil {
			return s, nil
		}
		select {
		case <-time.After(arrivalPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isConnected needs the lock.
func (h *Hub) isConnected(s *Runner) bool { return h.runners[s.hello.JobUID] == s }

// Result returns what the runner that holds a key reported about a call, also when its connection has ended; nil when
// there is nothing.
func (h *Hub) Result(keyHash, callUID string) *wire.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.processes[keyHash]; s != nil {
		return s.ResultOf(callUID)
	}
	return nil
}

// Accepted are the calls that the runner which holds a key may have got: those that it listed in its last
// hello, and those that it was told of since. known is false when this operator hasn't heard such a runner say hello.
func (h *Hub) Accepted(keyHash string) (calls []HeldCall, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.processes[keyHash]
	if s == nil {
		return nil, false
	}
	// One that waits has no calls.
	return s.HeldCalls(), true
}

// LastCallEnded is when the runner of a session that holds a key last reported the end of a call to this operator; zero when it hasn't.
func (h *Hub) LastCallEnded(keyHash string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.processes[keyHash]; s != nil {
		return inServed(s, func(v *served) time.Time { return v.lastEnd })
	}
	return time.Time{}
}

// Forget forgets what a session's runner had, and its results, when its connection has ended. The caller has recorded that the runner
// is gone, and how its calls ended.
func (h *Hub) Forget(keyHash string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.processes[keyHash]; s != nil && !h.isConnected(s) {
		h.forget(s)
	}
}

// Release forgets a call of a runner whose connection has ended, and its result. The caller has recorded how the call ended.
func (h *Hub) Release(keyHash, callUID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.processes[keyHash]; s != nil {
		s.releaseResult(callUID)
		h.settle(s)
	}
}

// HoldsOther says that a runner has, or reported, a call of a name with another UID. Whoever asks reads the call
// past the cache before Dismiss.
func (h *Hub) HoldsOther(namespace, call, uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.objects[objectName{wire.KindCall, namespace, call}] {
		if s.hasOther(call, uid) {
			return true
		}
	}
	return false
}

// Dismiss has the calls of a name stopped which are gone, and acknowledges their results. The one that has the UID except
// stays. A session's runner goes on with the calls of other names; one that was begun for a call that is gone, or made for one
// where there is none, is refused.
func (h *Hub) Dismiss(namespace, call, except, reason string) {
	for _, s := range h.of(objectName{wire.KindCall, namespace, call}) {
		owner, hasBegun := s.Owner()
		switch {
		case !hasBegun && except == "", owner.IsCall() && owner.UID != except:
			s.Refuse(reason)
			// Its connection may have ended a moment before.
			h.Release(s.keyHash, owner.UID)
		case owner.IsSession():
			s.dismiss(call, except)
		}
	}
}

// DismissSession ends the runners of a session which is gone, and forgets what was left of them. Those of the session of
// the same name that has the UID except stay.
func (h *Hub) DismissSession(namespace, session, except, reason string) {
	for _, s := range h.of(objectName{wire.KindSession, namespace, session}) {
		if owner, _ := s.Owner(); except == "" || owner.UID != except {
			s.Refuse(reason)
			h.Forget(s.keyHash)
		}
	}
}

// of are the runners that an object is found by.
func (h *Hub) of(object objectName) []*Runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.objects[object]))
}

// all are the runners of now.
func (h *Hub) all() []*Runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.runners))
}

// lost are the runners that aren't connected, and of which something is remembered.
func (h *Hub) lost() []*Runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(h.processes)), h.isConnected)
}

// Len is the number of runners that are connected.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.runners)
}

// nextOrder numbers a connection that has come.
func (h *Hub) nextOrder() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connections++
	return h.connections
}

// add registers a runner. A runner that connects again takes the place of its own older connection, never of a newer one: what it
// said on that is the truth. Another process with the same token is turned away while one is there, so that who came first can't be
// displaced, unless that one waits and an object records the other.
func (h *Hub) add(s *Runner) bool {
	h.mu.Lock()
	old := h.runners[s.hello.JobUID]
	if last := h.processes[s.keyHash]; last != nil && last.order > s.order || old != nil && !s.displaces(old) {
		h.mu.Unlock()
		return false
	}
	h.runners[s.hello.JobUID] = s
	if old != nil {
		h.leave(old)
	}
	news := h.enter(s)
	h.mu.Unlock()
	if old != nil {
		// Its process has closed it, or isn't the Job's runner: nobody waits until that has read what is queued.
		old.outbox.giveUp()
		old.close()
		if !old.IsWaiting() && s.IsWaiting() {
			// The owner has to know: the beginning was lost.
			h.notify(old, old.news())
		}
	}
	h.notify(s, news)
	return true
}

func (h *Hub) remove(s *Runner) {
	h.mu.Lock()
	current := h.isConnected(s)
	if current {
		delete(h.runners, s.hello.JobUID)
		h.leave(s)
	}
	h.mu.Unlock()
	if current {
		h.notify(s, s.news())
	}
}

// The rest needs the lock.

// enter makes a runner found by what it has. What the runner says now replaces what it said before.
func (h *Hub) enter(s *Runner) News {
	news := s.news()
	before := h.processes[s.keyHash]
	h.processes[s.keyHash] = s
	if before != nil && !h.isConnected(before) {
		news.Calls = append(news.Calls, s.continueFrom(before)...)
		h.forget(before)
	}
	h.find(s, true)
	return news
}

// leave is for a runner that isn't connected any more.
func (h *Hub) leave(s *Runner) {
	s.end()
	h.settle(s)
}

// settle forgets a runner that isn't connected, and of which nothing is remembered.
func (h *Hub) settle(s *Runner) {
	if !h.isConnected(s) && !(h.processes[s.keyHash] == s && inServed(s, (*served).isRemembered)) {
		h.forget(s)
	}
}

// forget drops a runner that isn't connected, with its results.
func (h *Hub) forget(s *Runner) {
	h.find(s, false)
	s.releaseResults()
	if h.processes[s.keyHash] == s {
		delete(h.processes, s.keyHash)
	}
}

// find has a runner found by its objects, or not any more.
func (h *Hub) find(s *Runner, found bool) {
	for _, object := range s.objects() {
		h.objects.set(object, s, found)
	}
}

// reindex has a runner found by an object for as long as the runner has it. It takes the lock.
func (h *Hub) reindex(s *Runner, kind wire.OwnerKind, name string) {
	object := s.object(kind, name)
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.isConnected(s) || h.processes[s.keyHash] == s
	h.objects.set(object, s, known && slices.Contains(s.objects(), object))
}
