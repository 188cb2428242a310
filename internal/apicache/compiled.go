package apicache

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/guards"
)

// Compiled keeps policies compiled, the last generation of each. The zero value is empty.
type Compiled struct {
	mu     sync.Mutex
	byName map[string]compiled
}

type compiled struct {
	uid        types.UID
	generation int64
	policy     *guards.Policy
	err        error
}

// Compile returns the policy of an object, or of the built-in defaults for nil.
func (c *Compiled) Compile(object *v1alpha1.ExecutionPolicy) (*guards.Policy, error) {
	// No object has an empty name.
	var name string
	var uid types.UID
	var generation int64
	if object != nil {
		name, uid, generation = object.Name, object.UID, object.Generation
	}
	c.mu.Lock()
	have, ok := c.byName[name]
	c.mu.Unlock()
	if ok && have.uid == uid && have.generation == generation {
		return have.policy, have.err
	}
	policy, err := decide.CompilePolicy(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName = map[string]compiled{}
	}
	c.byName[name] = compiled{uid: uid, generation: generation, policy: policy, err: err}
	return policy, err
}

// Forget drops a policy that was deleted.
func (c *Compiled) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byName, name)
}
