package decide

import (
	"slices"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
)

// approvalOf is what people have to decide about a call by its policy's spec.approvals; nil for nothing.
func (s *Snapshot) approvalOf(object *v1alpha1.ExecutionPolicy, action *guards.Action) *Approval {
	if object == nil {
		return nil
	}
	var need *Approval
	for i := range object.Spec.Approvals {
		of := &object.Spec.Approvals[i]
		if len(of.Match.Rules) > 0 || len(of.Match.Actions) > 0 && !slices.Contains(of.Match.Actions, action.Type) ||
			len(of.Match.Tools) > 0 && !slices.Contains(of.Match.Tools, action.Tool()) {
			continue
		}
		if need == nil {
			need = &Approval{ExpiresSeconds: ptr.Deref(of.ExpiresSeconds, 900)}
		}
		need.Causes = append(need.Causes, of.Name)
		need.Approvers = append(need.Approvers, of.Approvers...)
		need.Minimum = max(need.Minimum, ptr.Deref(of.Minimum, 1))
		need.ExpiresSeconds = min(need.ExpiresSeconds, ptr.Deref(of.ExpiresSeconds, 900))
	}
	if need != nil {
		slices.Sort(need.Causes)
	}
	return need
}
