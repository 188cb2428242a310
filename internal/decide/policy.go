package decide

import (
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/celrules"
	"toolcall.dev/operator/internal/guards"
)

// Policy is a compiled policy: what its guards check, its rules, and what needs approval. It never changes and is safe for concurrent
// use.
type Policy struct {
	*guards.Policy
	rules     *celrules.Set
	approvals []v1alpha1.ApprovalRequirement
}

// RuleOnContent is the name of the first of the policy's rules that reads what a file action writes, or may; empty for none.
func (p *Policy) RuleOnContent() string { return p.rules.OnContent() }

// CompilePolicy compiles a policy, the built-in defaults for nil, and judges its examples. The error is an *ExamplesFailed where one comes
// out otherwise than it expects.
func CompilePolicy(object *v1alpha1.ExecutionPolicy) (*Policy, error) {
	policy, err := compile(object)
	if err != nil || object == nil {
		return policy, err
	}
	outcomes, err := judgeExamples(object, policy)
	if err != nil {
		return nil, err
	}
	if failed := failedOf(outcomes); failed != nil {
		return nil, failed
	}
	return policy, nil
}

// compile compiles a policy without its examples.
func compile(object *v1alpha1.ExecutionPolicy) (*Policy, error) {
	spec := &v1alpha1.ExecutionPolicySpec{}
	if object != nil {
		spec = &object.Spec
	}
	compiled, err := guards.Compile(spec)
	if err != nil {
		return nil, err
	}
	rules, err := celrules.Compile(spec.Rules)
	if err != nil {
		return nil, err
	}
	approvals, err := compileApprovals(spec.Approvals, rules)
	if err != nil {
		return nil, err
	}
	return &Policy{Policy: compiled, rules: rules, approvals: approvals}, nil
}

// compilePolicy finds and compiles the policy that the call is held to.
func (s *Snapshot) compilePolicy() (*v1alpha1.ExecutionPolicy, *Policy, error) {
	object, err := s.Policies.For(s.PolicyEnvironment())
	if err != nil {
		return nil, nil, err
	}
	policy, err := compileWith(s.Compile, object)
	return object, policy, err
}

func compileWith(compile func(*v1alpha1.ExecutionPolicy) (*Policy, error), object *v1alpha1.ExecutionPolicy) (*Policy, error) {
	if compile == nil {
		compile = CompilePolicy
	}
	policy, err := compile(object)
	if err != nil {
		return nil, Refuse(v1alpha1.ReasonInvalidPolicy, "the policy does not compile: %s", err.Error())
	}
	return policy, nil
}
