package initialize

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// helpers are programs that listed ones start: the kernel lets them run, and calls can't name them. A built-in table has the others.
var helpers = map[string]v1alpha1.HelperList{
	"git":  {"ssh"},
	"make": {"cc", "as", "ld", "/usr/lib/gcc/*/*/", "/usr/libexec/gcc/*/*/"},
}

// policyName has a dot, which neither part has: no other namespace and agent have the same.
func (p *plan) policyName() string { return p.namespace + "." + p.agent }

// setPolicy makes the policy. It fails if that isn't one which the operator would use: an example that comes out otherwise is an error
// too.
func (p *plan) setPolicy() (err error) {
	p.policy = p.rules()
	if p.policy.Spec.Examples, err = p.examples(p.policy); err == nil {
		_, err = decide.CompilePolicy(p.policy)
	}
	if err != nil {
		return fmt.Errorf("the policy that these flags make: %w", err)
	}
	return nil
}

// rules is the policy without examples.
func (p *plan) rules() *v1alpha1.ExecutionPolicy {
	policy := &v1alpha1.ExecutionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionPolicy"},
		ObjectMeta: p.clusterObject(p.policyName()),
		Spec: v1alpha1.ExecutionPolicySpec{
			Access:   v1alpha1.AccessRBAC,
			Shell:    &v1alpha1.ShellPolicy{Enabled: ptr.To(p.tools.shell), Commands: v1alpha1.ShellAllowlisted},
			Binaries: p.binaries(),
			Files:    &v1alpha1.FilesPolicy{ReadPaths: p.preset.readPaths, WritePaths: p.preset.writePaths},
			Code:     &v1alpha1.CodePolicy{Enabled: ptr.To(len(p.tools.languages) > 0)},
			Network:  p.network(),
			Timeouts: &v1alpha1.TimeoutsPolicy{DefaultSeconds: ptr.To(p.preset.defaultSeconds), MaxSeconds: ptr.To(p.preset.maxSeconds)},
		},
	}
	if len(p.tools.languages) > 0 {
		policy.Spec.Code.Languages, policy.Spec.Code.DeniedModules = p.tools.languages, p.preset.deniedModules
	}
	if p.preset.runsBuilt {
		// What a call builds has names that no list knows.
		policy.Spec.Shell.Commands = v1alpha1.ShellUnrestricted
	}
	p.addApprovals(&policy.Spec)
	return policy
}

func (p *plan) binaries() *v1alpha1.BinariesPolicy {
	b := &v1alpha1.BinariesPolicy{
		Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementKernel, Allowed: append([]string{}, p.tools.programs...),
	}
	for program, list := range helpers {
		if slices.Contains(b.Allowed, program) {
			if b.Helpers == nil {
				b.Helpers = map[string]v1alpha1.HelperList{}
			}
			b.Helpers[program] = list
		}
	}
	if p.preset.runsBuilt {
		b.Allowed = append(b.Allowed, workspace+"/")
		b.AllowWritable = ptr.To(true)
	}
	return b
}

func (p *plan) network() *v1alpha1.NetworkRules {
	if len(p.hosts) == 0 && !p.preset.loopback {
		return &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkNone}
	}
	return &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: p.hosts}
}

func (p *plan) addApprovals(spec *v1alpha1.ExecutionPolicySpec) {
	var names []string
	for i, phrase := range p.phrases {
		names = append(names, fmt.Sprintf("approve-%d", i+1))
		spec.Rules = append(spec.Rules, phrase.rule(names[i]))
	}
	if len(names) > 0 {
		spec.Approvals = []v1alpha1.ApprovalRequirement{{
			Name: "approve", Match: v1alpha1.ApprovalMatch{Rules: names}, ExpiresSeconds: ptr.To(int32(v1alpha1.DefaultApprovalSeconds)),
		}}
	}
}
