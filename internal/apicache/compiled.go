package apicache

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// Compiled keeps policies compiled, the last generation of each. The zero value is empty.
type Compiled struct {
	byName sync.Map
	// compiling is held by the one who compiles: judging the examples of a policy may take long, and many calls may ask at once.
	compiling sync.Mutex
}

type compiled struct {
	uid        types.UID
	generation int64
	policy     *decide.Policy
	err        error
}

// Compile returns the policy of an object, or of the built-in defaults for nil.
func (c *Compiled) Compile(object *v1alpha1.ExecutionPolicy) (*decide.Policy, error) {
	// No object has an empty name.
	var name string
	var uid types.UID
	var generation int64
	if object != nil {
		name, uid, generation = object.Name, object.UID, object.Generation
	}
	if have := c.find(name, uid, generation); have != nil {
		return have.policy, have.err
	}
	c.compiling.Lock()
	defer c.compiling.Unlock()
	if have := c.find(name, uid, generation); have != nil {
		return have.policy, have.err
	}
	policy, err := decide.CompilePolicy(object)
	c.byName.Store(name, &compiled{uid: uid, generation: generation, policy: policy, err: err})
	return policy, err
}

// find is what was compiled of a generation; nil where that wasn't the last one.
func (c *Compiled) find(name string, uid types.UID, generation int64) *compiled {
	if have, ok := c.byName.Load(name); ok {
		if have := have.(*compiled); have.uid == uid && have.generation == generation {
			return have
		}
	}
	return nil
}

// Forget drops a policy that was deleted.
func (c *Compiled) Forget(name string) { c.byName.Delete(name) }
