package host

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
)

// Placement is the host that a call gets.
type Placement struct {
	Path v1alpha1.Path
	// Create is the Job to make; nil for a host that is there.
	Create *batchv1.Job
	// Runner is the connected runner that the call claimed; nil for a host that is to be made.
	Runner *dispatch.Runner
}

// Placer finds or makes a host for a call. A nil Placement means that it has none to give, and the next placer is
// asked. The error is the user's: no host can be made from what the environment asks for.
type Placer interface {
	Place(call *v1alpha1.ToolCall, decision *decide.Decision) (*Placement, error)
}

// Cold makes a host for the call alone.
type Cold struct {
	Runtime jobspec.Runtime
	Sealer  jobspec.Sealer
}

// Place builds the call's Job.
func (c *Cold) Place(call *v1alpha1.ToolCall, decision *decide.Decision) (*Placement, error) {
	job, err := jobspec.Build(jobspec.Input{Call: call, Decision: decision, Runtime: c.Runtime, Sealer: c.Sealer})
	if err != nil {
		return nil, err
	}
	return &Placement{Path: v1alpha1.PathCold, Create: job}, nil
}

// Warm gives the call a host of the environment's pool.
type Warm struct {
	Runtime  jobspec.Runtime
	Registry *Registry
}

// Place claims a waiting runner. A call never waits for the pool.
func (w *Warm) Place(call *v1alpha1.ToolCall, decision *decide.Decision) (*Placement, error) {
	if PoolSize(decision.In) == 0 || jobspec.ChosenQueue(decision.In, call) != "" {
		// A queue that the call chooses hasn't admitted what waits.
		return nil, nil
	}
	template, hash, err := PoolTemplate(decision.In, decision.Default, decision.Policy, decision.Plan.Blocklist, w.Runtime)
	if err != nil || !Covers(template.Refs, decision.Refs) {
		return nil, err
	}
	runner := w.Registry.Claim(hash, Claimant{wire.KindCall, types.NamespacedName{Namespace: call.Namespace, Name: call.Name}}, string(call.UID))
	if runner == nil {
		return nil, nil
	}
	return &Placement{Path: v1alpha1.PathWarm, Runner: runner}, nil
}

// Covers says whether a pod that has these references has all that a call or a session needs.
func Covers(have, need []corev1.EnvVar) bool {
	return !slices.ContainsFunc(need, func(v corev1.EnvVar) bool {
		return !slices.ContainsFunc(have, func(other corev1.EnvVar) bool { return other.Name == v.Name })
	})
}

// PoolSize is how many pods an environment keeps waiting.
func PoolSize(env *v1alpha1.ExecutionEnvironment) int32 {
	if env.Spec.WarmPool == nil || env.DeletionTimestamp != nil {
		return 0
	}
	return env.Spec.WarmPool.Size
}

// PoolTemplate is what the waiting pods of an environment are made from, and its hash. defaultEnv is the namespace's
// default environment, policy the one in effect; either may be nil. A pod is replaced when one of them changes.
func PoolTemplate(env, defaultEnv *v1alpha1.ExecutionEnvironment, policy *v1alpha1.ExecutionPolicy, blocklist []string, runtime jobspec.Runtime) (jobspec.WarmInput, string, error) {
	var replaceOn []string
	if policy != nil {
		replaceOn = append(replaceOn, fmt.Sprint("policy ", policy.UID, policy.Generation))
	}
	if defaultEnv != nil && defaultEnv.UID != env.UID {
		replaceOn = append(replaceOn, fmt.Sprint("default ", defaultEnv.UID, defaultEnv.Generation))
	}
	template := jobspec.WarmInput{Environment: env, Refs: decide.PoolRefs(env, defaultEnv, blocklist), ReplaceOn: replaceOn, Runtime: runtime, RestrictsNetwork: decide.RestrictsNetwork(policy)}
	hash, err := jobspec.TemplateHash(template)
	return template, hash, err
}
