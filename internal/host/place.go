package host

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// Need is what a waiting host has to be made from, and to have.
type Need struct {
	// Environment is the one whose pool it waits in, Default the namespace's default environment, Policy the one in effect; the latter
	// two may be nil. Blocklist is the policy's.
	Environment, Default *v1alpha1.ExecutionEnvironment
	Policy               *v1alpha1.ExecutionPolicy
	Blocklist            []string
	// Refs are the variables that the kubelet has to have resolved.
	Refs    []corev1.EnvVar
	Runtime jobspec.Runtime
}

// ClaimFitting claims a waiting runner whose pod has what is needed; nil when there is none. Nobody waits for a pool. The runner may be
// on its way out.
func (r *Registry) ClaimFitting(n Need, by Claimant, uid string) (*dispatch.Runner, error) {
	if PoolSize(n.Environment) == 0 {
		return nil, nil
	}
	template, hash, err := PoolTemplate(n.Environment, n.Default, n.Policy, n.Blocklist, n.Runtime)
	if err != nil || !covers(template.Refs, n.Refs) {
		return nil, err
	}
	return r.Claim(hash, by, uid), nil
}

// PathOf says how the host with a Job comes to its call or session.
func PathOf(job *batchv1.Job) v1alpha1.Path {
	if jobspec.PoolOf(job) != "" {
		return v1alpha1.PathWarm
	}
	return v1alpha1.PathCold
}

// covers says whether a pod that has these references has all that a call or a session needs.
func covers(have, need []corev1.EnvVar) bool {
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
// default environment, policy the one in effect; either may be nil. A pod is replaced when one of them changes, but for
// what no pod depends on.
func PoolTemplate(env, defaultEnv *v1alpha1.ExecutionEnvironment, policy *v1alpha1.ExecutionPolicy, blocklist []string, runtime jobspec.Runtime) (jobspec.WarmInput, string, error) {
	var replaceOn []string
	if policy != nil {
		replaceOn = append(replaceOn, fmt.Sprint("policy ", policy.UID, policy.Generation))
	}
	template := jobspec.WarmInput{
		Environment: env, Refs: decide.PoolRefs(env, defaultEnv, blocklist), ReplaceOn: replaceOn, Runtime: runtime,
		RestrictsNetwork: decide.RestrictsNetwork(policy),
	}
	if defaultEnv != nil && defaultEnv.UID != env.UID {
		template.Default = defaultEnv
	}
	hash, err := jobspec.TemplateHash(template)
	return template, hash, err
}
