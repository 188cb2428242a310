package host

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// applets are multi-call programs of an image whose applets nothing holds, as a call found out under a policy.
type applets struct {
	policy   string
	programs []string
}

// SetApplets takes in which programs that a call could start run their applets unseen: none, or some. Calls with another shell
// or interpreter of the environment can start others.
func (n *Nodes) SetApplets(env types.NamespacedName, held *rules.Rules, programs []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.applets[env]
	if len(programs) == 0 {
		delete(found, held.Programs.Own)
		return
	}
	if found == nil {
		if len(n.applets) >= maxProblems {
			clear(n.applets)
		}
		found = map[string]applets{}
		n.applets[env] = found
	}
	found[held.Programs.Own] = applets{held.Policy, programs}
}

// Applets are the programs that calls of an environment can start under a policy and that run their applets unseen, as far as is
// known.
func (n *Nodes) Applets(env types.NamespacedName, held *rules.Rules) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]bool{}
	for _, found := range n.applets[env] {
		for _, program := range found.programs {
			if found.policy == held.Policy && held.Programs != nil {
				all[program] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
