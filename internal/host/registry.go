package host

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// Runners finds the connected runner of a Job, nil when there is none.
type Runners interface {
	Runner(jobUID string) *dispatch.Runner
}

// Registry holds which waiting runners calls and sessions may claim, by what their pods were made from, and which of them
// has claimed which. Its methods may be called at the same time. What is said of calls here goes for sessions, too.
//
// After a restart it is empty: the pools' controller offers the runners that connect and wait, and the status of calls
// and sessions says which runners they have.
type Registry struct {
	runners Runners
	// Back has a pool looked at whose runner waits again. Its controller offers the runner, unless an object records it.
	Back func(pool types.NamespacedName)

	mu sync.Mutex
	// offers are the Jobs that calls may claim, the oldest offer first.
	offers []offer
	// claims has the runner that a call claimed, by the call's UID.
	claims map[string]claim
}

// offer is a Job, and what its pod was made from.
type offer struct{ jobUID, template string }

// claim names a claimant and its runner: the Job, the key of its very process, and what its pod was made from.
type claim struct {
	Claimant
	jobUID, keyHash, template string
}

// Claimant is a call or a session: both may have the same name. Kind is wire.KindCall or wire.KindSession.
type Claimant struct {
	Kind wire.OwnerKind
	types.NamespacedName
}

// NewRegistry makes an empty one.
func NewRegistry(runners Runners) *Registry {
	return &Registry{runners: runners, Back: func(types.NamespacedName) {}, claims: map[string]claim{}}
}

// Offer lets calls claim a Job's runner, if it is connected and waits. Offering it twice is fine.
func (r *Registry) Offer(jobUID, template string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOffered(jobUID) && r.idle(jobUID) != nil && !r.isClaimed(jobUID) {
		r.offers = append(r.offers, offer{jobUID, template})
	}
}

// Claim gives a call the runner that it claimed before, or else the one that was offered first; nil when none waits.
// A call whose write failed half way finds the same runner again, never a second one while that is connected. One that
// was made from another template by then is refused.
func (r *Registry) Claim(template string, by Claimant, uid string) *dispatch.Runner {
	runner, outdated := r.claim(template, by, uid)
	if outdated != nil {
		outdated.Refuse("the pod's environment was changed")
	}
	return runner
}

func (r *Registry) claim(template string, by Claimant, uid string) (runner, outdated *dispatch.Runner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.claimed(uid); s != nil {
		if r.claims[uid].template == template {
			return s, nil
		}
		delete(r.claims, uid)
		outdated = s
	}
	for {
		at := slices.IndexFunc(r.offers, func(o offer) bool { return o.template == template })
		if at < 0 {
			return nil, outdated
		}
		jobUID := r.offers[at].jobUID
		r.withdraw(jobUID)
		if s := r.idle(jobUID); s != nil {
			r.claims[uid] = claim{by, jobUID, s.KeyHash(), template}
			return s, outdated
		}
	}
}

// Release ends a call's claim: its runner is recorded as the call's, or the call has ended. It is never offered again by this.
func (r *Registry) Release(callUID string) {
	r.release(func(uid string, _ Claimant) bool { return uid == callUID })
}

// ReleaseOthers ends the claims of all calls of a name but the one with a UID.
func (r *Registry) ReleaseOthers(by Claimant, except string) {
	r.release(func(uid string, c Claimant) bool { return c == by && uid != except })
}

// release ends the claims that isMeant says true of.
func (r *Registry) release(isMeant func(uid string, by Claimant) bool) {
	r.mu.Lock()
	var waiting []*dispatch.Runner
	for uid, c := range r.claims {
		if !isMeant(uid, c.Claimant) {
			continue
		}
		if s := r.claimed(uid); s != nil && s.IsWaiting() {
			waiting = append(waiting, s)
		}
		delete(r.claims, uid)
	}
	r.mu.Unlock()
	for _, s := range waiting {
		r.Back(types.NamespacedName{Namespace: s.Hello().Namespace, Name: s.Hello().Pool})
	}
}

// Withdraw ends the offer of a Job's runner, so that its pod may be removed. It says false when a call has it.
func (r *Registry) Withdraw(jobUID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isBusy(jobUID) {
		return false
	}
	r.withdraw(jobUID)
	return true
}

// IsBusy says that a Job's connected runner has a call or a session, or that one has claimed it.
func (r *Registry) IsBusy(jobUID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isBusy(jobUID)
}

// IsOffered says that calls may claim a Job's runner.
func (r *Registry) IsOffered(jobUID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isOffered(jobUID) && r.idle(jobUID) != nil
}

// Waiting counts the runners of a template that calls may claim.
func (r *Registry) Waiting(template string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, o := range r.offers {
		if o.template == template && r.idle(o.jobUID) != nil {
			n++
		}
	}
	return n
}

// The rest needs the lock.

func (r *Registry) idle(jobUID string) *dispatch.Runner {
	s := r.runners.Runner(jobUID)
	if s == nil || !s.IsWaiting() || s.IsRefused() {
		return nil
	}
	return s
}

func (r *Registry) claimed(callUID string) *dispatch.Runner {
	c, ok := r.claims[callUID]
	if !ok {
		return nil
	}
	s := r.runners.Runner(c.jobUID)
	if s == nil || s.KeyHash() != c.keyHash {
		delete(r.claims, callUID)
		return nil
	}
	return s
}

func (r *Registry) isClaimed(jobUID string) bool {
	for _, c := range r.claims {
		if c.jobUID == jobUID {
			return true
		}
	}
	return false
}

func (r *Registry) isBusy(jobUID string) bool {
	if r.isClaimed(jobUID) {
		return true
	}
	s := r.runners.Runner(jobUID)
	return s != nil && !s.IsWaiting()
}

func (r *Registry) isOffered(jobUID string) bool {
	return slices.ContainsFunc(r.offers, func(o offer) bool { return o.jobUID == jobUID })
}

func (r *Registry) withdraw(jobUID string) {
	r.offers = slices.DeleteFunc(r.offers, func(o offer) bool { return o.jobUID == jobUID })
}
