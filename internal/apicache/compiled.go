package apicache

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// Compiled keeps policies compiled, the last generation of each. The zero value is empty.
type Compiled struct{ byName sync.Map }

type compiled struct {
	uid        types.UID
	generation int64
	// compile compiles once: judging the examples of a policy may take long, and many calls may ask at once.
	compile func() (*decide.Policy, error)
}

// Compile returns the policy of an object, or of the built-in defaults for nil.
func (c *Compiled) Compile(object *v1alpha1.ExecutionPolicy) (*decide.Policy, error) {
	next := &compiled{compile: sync.OnceValues(func() (*decide.Policy, error) { return decide.CompilePolicy(object) })}
	name := "" // No object has an empty name.
	if object != nil {
		name, next.uid, next.generation = object.Name, object.UID, object.Generation
	}
	for {
		found, _ := c.byName.LoadOrStore(name, next)
		if have := found.(*compiled); have.uid == next.uid && have.generation == next.generation {
			return have.compile()
		}
		c.byName.CompareAndSwap(name, found, next)
	}
}

// Forget drops a policy that was deleted.
func (c *Compiled) Forget(name string) { c.byName.Delete(name) }
