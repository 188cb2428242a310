package dispatch

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// index has runners by the name of a call.
type index map[types.NamespacedName]map[*Runner]struct{}

// set says whether a runner is found by a name.
func (x index) set(name types.NamespacedName, s *Runner, found bool) {
	if found {
		if x[name] == nil {
			x[name] = map[*Runner]struct{}{}
		}
		x[name][s] = struct{}{}
		return
	}
	if delete(x[name], s); len(x[name]) == 0 {
		delete(x, name)
	}
}

// seenRunners has what the runners of sessions had when their connections ended, by the hash of their key: should such a
// runner never come back, only these calls can have been started by it. An entry stays until the runner connects again,
// is forgotten, or is no longer its session's.
type seenRunners struct {
	runners  map[string]*seenRunner
	sessions map[types.NamespacedName]map[string]struct{}
}

// seenRunner is a runner of a session that isn't connected.
type seenRunner struct {
	claim *claim
	calls []HeldCall
	// lastEnd is when the last of its calls ended; zero for none.
	lastEnd time.Time
}

func newSeenRunners() *seenRunners {
	return &seenRunners{runners: map[string]*seenRunner{}, sessions: map[types.NamespacedName]map[string]struct{}{}}
}

func (n *seenRunners) set(one *seenRunner) {
	key := one.claim.keyHash
	n.forget(key)
	n.runners[key] = one
	if n.sessions[one.claim.ownerName()] == nil {
		n.sessions[one.claim.ownerName()] = map[string]struct{}{}
	}
	n.sessions[one.claim.ownerName()][key] = struct{}{}
}

func (n *seenRunners) forget(keyHash string) {
	one := n.runners[keyHash]
	if one == nil {
		return
	}
	delete(n.runners, keyHash)
	if delete(n.sessions[one.claim.ownerName()], keyHash); len(n.sessions[one.claim.ownerName()]) == 0 {
		delete(n.sessions, one.claim.ownerName())
	}
}

// ofSession are the keys of the runners of a session of a name whose UID isn't the one that stays.
func (n *seenRunners) ofSession(name types.NamespacedName, except string) []string {
	var keys []string
	for key := range n.sessions[name] {
		if except == "" || n.runners[key].claim.owner.UID != except {
			keys = append(keys, key)
		}
	}
	return keys
}
