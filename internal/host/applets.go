package host

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Applets are multi-call programs of an image that calls of an environment can start.
type Applets struct {
	// Unheld are those whose applets nothing holds, NamesOnly those whose names are only looked at.
	Unheld, NamesOnly []string
}

// applets are what a call found out under a policy.
type applets struct {
	policy string
	Applets
}

// SetApplets takes in what a call found out about programs that it could start: none, or some. Calls with another shell
// or interpreter of the environment can start others.
func (n *Nodes) SetApplets(env types.NamespacedName, held *rules.Rules, programs Applets) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(programs.Unheld) == 0 && len(programs.NamesOnly) == 0 {
		delete(n.of(env, false).applets, held.Programs.Own)
		return
	}
	n.of(env, true).applets[held.Programs.Own] = applets{held.Policy, programs}
}

// Applets are the multi-call programs that calls of an environment can start under a policy, as far as is known.
func (n *Nodes) Applets(env types.NamespacedName, held *rules.Rules) Applets {
	n.mu.Lock()
	defer n.mu.Unlock()
	unheld, namesOnly := map[string]bool{}, map[string]bool{}
	for _, found := range n.of(env, false).applets {
		if found.policy != held.Policy || held.Programs == nil {
			continue
		}
		for _, program := range found.Unheld {
			unheld[program] = true
		}
		for _, program := range found.NamesOnly {
			namesOnly[program] = true
		}
	}
	return Applets{slices.Sorted(maps.Keys(unheld)), slices.Sorted(maps.Keys(namesOnly))}
}
