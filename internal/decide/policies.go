package decide

import (
	"toolcall.dev/operator/api/v1alpha1"
)

// Policies holds the policies that may apply to an environment.
type Policies struct {
	// Named is the policy that the environment names; nil when it names none, or there is none of that name.
	Named *v1alpha1.ExecutionPolicy
	// Defaults are the policies that are marked as the cluster's default.
	Defaults []v1alpha1.ExecutionPolicy
}

// For is the policy that the environment's calls are held to; nil stands for the built-in defaults. The error is a
// *Refusal.
func (p *Policies) For(env *v1alpha1.ExecutionEnvironment) (*v1alpha1.ExecutionPolicy, error) {
	switch name := env.Spec.PolicyName(); {
	case name != "" && p.Named == nil:
		return nil, Refuse(v1alpha1.ReasonInvalidPolicy, "there is no ExecutionPolicy %q, which ExecutionEnvironment %q names", name, env.Name)
	case name != "":
		return p.Named, nil
	case len(p.Defaults) > 1:
		return nil, Refuse(v1alpha1.ReasonInvalidPolicy, "%d ExecutionPolicies are annotated with %s: \"true\"; keep it on one of them", len(p.Defaults), v1alpha1.AnnotationDefaultPolicy)
	case len(p.Defaults) == 1:
		return &p.Defaults[0], nil
	default:
		return nil, nil
	}
}
