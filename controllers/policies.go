package controllers

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/guards"
)

// PolicyCache keeps compiled policies, one generation each.
type PolicyCache struct {
	mu       sync.Mutex
	compiled map[types.UID]compiledPolicy
}

type compiledPolicy struct {
	generation int64
	policy     *guards.Policy
	err        error
}

// builtin is the key of the defaults that hold when there is no policy: no object has an empty UID.
const builtin types.UID = ""

// NewPolicyCache makes an empty one.
func NewPolicyCache() *PolicyCache {
	return &PolicyCache{compiled: map[types.UID]compiledPolicy{}}
}

// Compile returns the policy of an object, or of the built-in defaults for nil.
func (c *PolicyCache) Compile(p *v1alpha1.ExecutionPolicy) (*guards.Policy, error) {
	uid, generation, spec := builtin, int64(0), (*v1alpha1.ExecutionPolicySpec)(nil)
	if p != nil {
		uid, generation, spec = p.UID, p.Generation, &p.Spec
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.compiled[uid]; ok && have.generation == generation {
		return have.policy, have.err
	}
	policy, err := guards.Compile(spec)
	c.compiled[uid] = compiledPolicy{generation: generation, policy: policy, err: err}
	return policy, err
}

// Forget drops a policy that was deleted.
func (c *PolicyCache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.compiled, uid)
}

// errPolicy marks a policy that can't be used.
var errPolicy = decide.ErrPolicy

// policyFor finds the policy that an environment's calls are held to. It is nil for the built-in defaults.
func policyFor(ctx context.Context, reader client.Reader, name string) (*v1alpha1.ExecutionPolicy, error) {
	if name != "" {
		policy := &v1alpha1.ExecutionPolicy{}
		err := reader.Get(ctx, types.NamespacedName{Name: name}, policy)
		if apierrors.IsNotFound(err) {
			return nil, decide.NoPolicy(name)
		}
		if err != nil {
			return nil, fmt.Errorf("get ExecutionPolicy %s: %w", name, err)
		}
		return policy, nil
	}
	defaults := &v1alpha1.ExecutionPolicyList{}
	if err := reader.List(ctx, defaults, client.MatchingFields{indexDefault: "true"}); err != nil {
		return nil, fmt.Errorf("list default policies: %w", err)
	}
	return decide.DefaultPolicy(defaults.Items)
}
