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
//	Stop, of a call that it has         no change: the result follows
//	Stop, of one that it doesn't have   Withdrawn; Ended with a result that says that nothing was started
//	it answers Known                    Known: the result was acknowledged before
//	Record                              no change: the result is dropped, also when it comes later
//	Ack                                 dropped, with the result; at once when the result comes later
//
// Each of these is sent once a connection, so that a pass over a call can be repeated. A runner is served when all the
// calls that its hello announces have come. What it says then replaces what was known of it: a call that was assigned
// on an earlier connection and isn't listed was never started, and is assigned again.
//
// When the connection ends, the results stay (Result), and so does the list of what the runner had (Accepted): should it
// never come back, only these calls can have been started by it. Another operator knows no such list until it hears the
// runner's hello. The list goes when the session has another runner or is gone (Forget, DismissSession, the sweep). That of a
// ToolCall's runner isn't kept: the record alone says that the call may have been started.
//
// News says who has to look: a result is for its call, a runner that comes or goes for its owner and the calls it had.
// Only Dismiss stops calls that are gone, after somebody has read that past the cache: that the cache
// doesn't have a call says nothing.
//
// # Bounds
//
// A runner has at most wire.MaxHeldCalls calls, and is assigned none while wire.MaxUnacknowledged results aren't
// acknowledged or much of what it was sent waits to be read (ErrNoRoom). Each result takes its part of the budget of its
// namespace. Decisions have a budget of their own: where it is used up, HeldCall.Decision is empty, and the result brings
// the decision back. Results that outlive their connection are bounded by their size, and the namespace that has most of
// them gives way.
package dispatch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Hub holds the runners that are connected now, by the UID of their Job, and the results of runners
// that are gone again before anybody took them.
type Hub struct {
	// Clock tells when runners were last used: the machine's, unless another one is set before a runner connects.
	Clock  clock.PassiveClock
	notify func(*Runner)

	mu      sync.Mutex
	since   time.Time
	runners map[string]*Runner
	keys    map[string]*Runner
	// calls has the runners that were made for a call or have it, sessions those of a ToolSession: no pass over an
	// object looks at all of them.
	calls, sessions index
	left            *leftResults
	// seen has the runners of ToolSessions that were connected before.
	seen *seenRunners
	// expected has the runners that readers of output wait for, by the hash of their key.
	expected map[string]*arrival
	// connections counts those that came; newest is the last one of each process that is gone, by the hash of its key, for as long as an
	// earlier one may take to be added.
	connections uint64
	newest      *cache.Expiring
}

// NewHub makes a hub that calls notify, without holding a lock, whenever a runner has something new.
func NewHub(notify func(*Runner)) *Hub {
	return &Hub{
		Clock: clock.RealClock{}, notify: notify, runners: map[string]*Runner{}, keys: map[string]*Runner{}, calls: index{}, sessions: index{},
		left: newLeftResults(maxLeftBytes), seen: newSeenRunners(), expected: map[string]*arrival{}, newest: cache.NewExpiring(),
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
	return h.keys[keyHash]
}

// Result returns what the runner that holds a key reported about a call, also when its connection has ended; nil when
// there is nothing.
func (h *Hub) Result(keyHash, callUID string) *wire.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.keys[keyHash]; s != nil {
		if r := s.ResultOf(callUID); r != nil {
			return r
		}
	}
	return h.left.get(keyHash, callUID)
}

// Accepted are the calls that the runner of a session which holds a key may have got: those that it listed in its last
// hello, and those that it was told of since. known is false when this operator hasn't heard such a runner say hello.
func (h *Hub) Accepted(keyHash string) (calls []HeldCall, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.keys[keyHash]; s != nil {
		// One that waits has no calls.
		return acceptedOf(s.HeldCalls()), true
	}
	if seen := h.seen.runners[keyHash]; seen != nil {
		return acceptedOf(seen.calls), true
	}
	return nil, false
}

// LastCallEnded is when the runner of a session that holds a key last reported the end of a call to this operator; zero when it hasn't.
func (h *Hub) LastCallEnded(keyHash string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.keys[keyHash]; s != nil {
		return inServed(s, (*served).lastEndOf)
	}
	if seen := h.seen.runners[keyHash]; seen != nil {
		return seen.lastEnd
	}
	return time.Time{}
}

// Forget forgets what a session's runner had, and its results. The caller has recorded that the runner is gone, and how
// its calls ended.
func (h *Hub) Forget(keyHash string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.forget(keyHash)
	h.left.forgetRunner(keyHash, func(string) bool { return false })
}

// Release forgets a result of a runner whose connection has ended.
func (h *Hub) Release(keyHash, callUID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left.forget(keyHash, callUID)
}

// HoldsOther says that a runner has, or reported, a call of a name with another UID. Whoever asks reads the call
// past the cache before Dismiss.
func (h *Hub) HoldsOther(namespace, call, uid string) bool {
	name := types.NamespacedName{Namespace: namespace, Name: call}
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.calls[name] {
		if inServed(s, func(v *served) bool { return v.isForOther(call, uid) }) {
			return true
		}
	}
	return h.left.hasOther(name, uid)
}

// Dismiss has the calls of a name stopped which are gone, and acknowledges their results. The one that has the UID except
// stays. A session's runner goes on with the calls of other names; one that was begun for a call that is gone, or made for one
// where there is none, is refused.
func (h *Hub) Dismiss(namespace, call, except, reason string) {
	name := types.NamespacedName{Namespace: namespace, Name: call}
	h.mu.Lock()
	runners := slices.Collect(maps.Keys(h.calls[name]))
	h.left.forgetOthers(name, except)
	h.mu.Unlock()
	for _, s := range runners {
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
	name := types.NamespacedName{Namespace: namespace, Name: session}
	var gone []*Runner
	h.mu.Lock()
	for s := range h.sessions[name] {
		if owner, _ := s.Owner(); except == "" || owner.UID != except {
			gone = append(gone, s)
		}
	}
	forgotten := h.seen.ofSession(name, except)
	h.mu.Unlock()
	for _, s := range gone {
		s.Refuse(reason)
		forgotten = append(forgotten, s.keyHash)
	}
	for _, keyHash := range forgotten {
		h.Forget(keyHash)
	}
}

// all are the runners of now.
func (h *Hub) all() []*Runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.runners))
}

// seenClaims are what the runners of ToolSessions said that they are which aren't connected.
func (h *Hub) seenClaims() []*claim {
	h.mu.Lock()
	defer h.mu.Unlock()
	claims := make([]*claim, 0, len(h.seen.runners))
	for _, seen := range h.seen.runners {
		claims = append(claims, seen.claim)
	}
	return claims
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
	newest, _ := h.newest.Get(s.keyHash)
	last, _ := newest.(uint64)
	if last > s.order || old != nil && !s.displaces(old) {
		h.mu.Unlock()
		return false
	}
	h.runners[s.hello.JobUID] = s
	h.keys[s.keyHash] = s
	h.arrive(s)
	if old != nil {
		h.leave(old)
	}
	h.enter(s)
	h.mu.Unlock()
	if old != nil {
		old.close()
		if !old.IsWaiting() && s.IsWaiting() {
			// The owner has to know: the beginning was lost.
			h.notify(old)
		}
	}
	h.notify(s)
	return true
}

func (h *Hub) remove(s *Runner) {
	h.mu.Lock()
	current := h.runners[s.hello.JobUID] == s
	if current {
		delete(h.runners, s.hello.JobUID)
		h.leave(s)
	}
	if h.keys[s.keyHash] == s {
		delete(h.keys, s.keyHash)
	}
	h.mu.Unlock()
	if current {
		h.notify(s)
	}
}

// enter makes a runner found by what it has. What the runner says now replaces what it said before. It needs the lock.
func (h *Hub) enter(s *Runner) {
	inServed(s, (*served).markAll)
	calls, sessions := s.names()
	for _, name := range calls {
		h.calls.set(name, s, true)
	}
	for _, name := range sessions {
		h.sessions.set(name, s, true)
	}
	h.left.forgetRunner(s.keyHash, func(callUID string) bool { _, has := s.HeldCall(callUID); return has })
	if seen := h.seen.runners[s.keyHash]; seen != nil {
		inServed(s, func(v *served) bool { return v.continueFrom(seen) })
	}
	h.seen.forget(s.keyHash)
}

// leave takes a runner out of the index, and holds on to the results that nobody acknowledged or refused. It needs the
// lock.
func (h *Hub) leave(s *Runner) {
	h.newest.Set(s.keyHash, s.order, 2*listTimeout)
	results, held := s.end()
	calls, sessions := s.names()
	for _, name := range calls {
		h.calls.set(name, s, false)
	}
	for _, name := range sessions {
		h.sessions.set(name, s, false)
		h.seen.set(&seenRunner{s.claim(), held, inServed(s, (*served).lastEndOf)})
	}
	for _, r := range results {
		// The budget is for what connected runners send.
		r.release()
		h.left.keep(s.keyHash, r)
	}
}

// reindex has a runner found by a name for as long as it is connected and has a call, or serves a session, of that name.
func (h *Hub) reindex(s *Runner, name types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	connected := h.runners[s.hello.JobUID] == s
	calls, sessions := s.names()
	h.calls.set(name, s, connected && slices.Contains(calls, name))
	h.sessions.set(name, s, connected && slices.Contains(sessions, name))
}

// received has the copy of a result dropped that came again, and its call looked at.
func (h *Hub) received(s *Runner, callUID string) {
	h.mu.Lock()
	if h.keys[s.keyHash] == s && s.ResultOf(callUID) != nil {
		h.left.forget(s.keyHash, callUID)
	}
	h.mu.Unlock()
	h.notify(s)
}
