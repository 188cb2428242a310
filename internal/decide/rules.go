package decide

import (
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
)

// RulesOf is what the kernel holds calls of a policy to, whatever they run; nil for nothing.
func RulesOf(object *v1alpha1.ExecutionPolicy, policy *Policy) *rules.Rules {
	r := rulesOf(object, policy.Policy, &guards.Action{Type: v1alpha1.ActionStructured}, nil)
	isSaid := object != nil && object.Spec.Network != nil // without a word of it, calls go without a network where none can be held
	if mode := networkRules(object).Mode; isSaid && mode != v1alpha1.NetworkUnrestricted && mode != v1alpha1.NetworkNone {
		r = rules.WithConnections(r)
		r.Policy = object.Name
	}
	return r
}

// rulesOf is what the kernel holds a call to: the list of programs where the policy has one that holds for all of the
// call's processes, and the paths. Nil for nothing.
func rulesOf(object *v1alpha1.ExecutionPolicy, policy *guards.Policy, action *guards.Action, prefix []string) *rules.Rules {
	if object == nil || action.Type == v1alpha1.ActionFile {
		return nil
	}
	spec := &object.Spec
	r := &rules.Rules{Policy: object.Name}
	if spec.Files != nil {
		r.ReadPaths, r.WritePaths = spec.Files.ReadPaths, spec.Files.WritePaths
	}
	if policy.HoldsPrograms() && policy.Enforcement() == v1alpha1.EnforcementKernel {
		r.Programs = &rules.Programs{}
		if b := spec.Binaries; b != nil {
			r.Programs.Allowed, r.Programs.AllowWritable = b.Allowed, ptr.Deref(b.AllowWritable, false)
			r.Programs.AllowMultiCall = b.MultiCall == v1alpha1.MultiCallAllow
			for program, helpers := range b.Helpers {
				if r.Programs.Helpers == nil {
					r.Programs.Helpers = map[string][]string{}
				}
				r.Programs.Helpers[program] = helpers
			}
		}
		if action.Type != v1alpha1.ActionStructured && len(prefix) > 0 {
			r.Programs.Own = prefix[0]
		}
	}
	if r.Programs == nil && r.ReadPaths == nil && r.WritePaths == nil {
		return nil
	}
	return r
}

// fileRulesOf are the policy's rules for a file action; nil for other calls.
func fileRulesOf(object *v1alpha1.ExecutionPolicy, action *guards.Action) *spec.FileRules {
	if action.Type != v1alpha1.ActionFile {
		return nil
	}
	r := &spec.FileRules{}
	if object == nil || object.Spec.Files == nil {
		return r
	}
	files := object.Spec.Files
	r.ReadPaths, r.WritePaths, r.DeniedPaths = files.ReadPaths, files.WritePaths, files.DeniedPaths
	r.MaxReadBytes, r.MaxWriteBytes = ptr.Deref(files.MaxReadBytes, 0), ptr.Deref(files.MaxWriteBytes, 0)
	return r
}
