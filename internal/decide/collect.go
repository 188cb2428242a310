package decide

import (
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/spec"
)

// collectOf is what the policy says about the files that a call collects; nil for a call that collects none.
func collectOf(object *v1alpha1.ExecutionPolicy, policy *guards.Policy, globs []string) *spec.Collect {
	if len(globs) == 0 {
		return nil
	}
	c := policy.Artifacts()
	if object != nil && object.Spec.Files != nil {
		c.WritePaths, c.DeniedPaths = object.Spec.Files.WritePaths, object.Spec.Files.DeniedPaths
	}
	return &c
}

// collect completes what was decided with the call's globs.
func (d *Decision) collect(call *v1alpha1.ToolCall) *spec.Collect {
	if d.Collect == nil {
		return nil
	}
	c := *d.Collect
	c.Globs = call.Spec.Collect
	return &c
}
