package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/celrules"
	"toolcall.dev/operator/internal/guards"
)

// Bounds of a requirement.
const (
	maxApprovals     = 8
	maxExpireSeconds = 604800
)

// compileApprovals checks the requirements of a policy, and returns them with their defaults. The error names the requirement and says what
// is wrong.
func compileApprovals(list []v1alpha1.ApprovalRequirement, rules *celrules.Set) ([]v1alpha1.ApprovalRequirement, error) {
	if len(list) > v1alpha1.MaxApprovalRequirements {
		return nil, fmt.Errorf("spec.approvals: %d requirements are too many: use at most %d", len(list), v1alpha1.MaxApprovalRequirements)
	}
	var compiled []v1alpha1.ApprovalRequirement
	for i := range list {
		a := &list[i]
		where := fmt.Sprintf("spec.approvals[%s]", cmp.Or(a.Name, strconv.Itoa(i)))
		r := withDefaults(a.DeepCopy())
		r.Name = cmp.Or(a.Name, fmt.Sprintf("approvals[%d]", i))
		switch {
		case slices.ContainsFunc(compiled, func(other v1alpha1.ApprovalRequirement) bool { return other.Name == r.Name }):
			return nil, fmt.Errorf("%s: another requirement has the same name: give each a name of its own, or none", where)
		case *r.Minimum < 1 || *r.Minimum > maxApprovals:
			return nil, fmt.Errorf("%s.minimum: %d is out of range: use 1 to %d", where, *r.Minimum, maxApprovals)
		case *r.ExpiresSeconds < 1 || *r.ExpiresSeconds > maxExpireSeconds:
			return nil, fmt.Errorf("%s.expiresSeconds: %d is out of range: use 1 to %d", where, *r.ExpiresSeconds, maxExpireSeconds)
		}
		for _, name := range a.Match.Rules {
			switch isThere, asks := rules.AsksForApproval(name); {
			case !isThere:
				return nil, fmt.Errorf("%s.match.rules: spec.rules has no rule %q", where, name)
			case !asks:
				return nil, fmt.Errorf("%s.match.rules: the effect of rule %q is not %s", where, name, v1alpha1.RuleRequireApproval)
			}
		}
		compiled = append(compiled, *r)
	}
	return compiled, nil
}

func withDefaults(r *v1alpha1.ApprovalRequirement) *v1alpha1.ApprovalRequirement {
	r.Minimum = ptr.To(ptr.Deref(r.Minimum, 1))
	r.ExpiresSeconds = ptr.To(ptr.Deref(r.ExpiresSeconds, v1alpha1.DefaultApprovalSeconds))
	return r
}

// isFor says whether a requirement is for an action that rules are true for.
func isFor(m *v1alpha1.ApprovalMatch, action *guards.Action, asking []*v1alpha1.PolicyRule) bool {
	return (len(m.Actions) == 0 || slices.Contains(m.Actions, action.Type)) &&
		(len(m.Tools) == 0 || slices.Contains(m.Tools, action.Tool())) &&
		(len(m.Rules) == 0 || slices.ContainsFunc(asking, func(rule *v1alpha1.PolicyRule) bool { return slices.Contains(m.Rules, rule.Name) }))
}

// approvalFor is what people have to decide before an action starts; nil for nothing.
func (p *Policy) approvalFor(action *guards.Action, asking []*v1alpha1.PolicyRule) *Approval {
	a := &Approval{Minimum: 1}
	var named []string
	for i := range p.approvals {
		if r := &p.approvals[i]; isFor(&r.Match, action, asking) {
			a.add(r)
			named = append(named, r.Match.Rules...)
		}
	}
	for _, rule := range asking {
		if !slices.Contains(named, rule.Name) {
			a.add(withDefaults(&v1alpha1.ApprovalRequirement{Name: rule.Name}))
		}
		a.Causes = append(a.Causes, rule.Name)
		if rule.Message != "" {
			a.Messages = append(a.Messages, rule.Message)
		}
	}
	if len(a.Causes) == 0 {
		return nil
	}
	a.Causes, a.Messages, a.Approvers = sorted(a.Causes), sorted(a.Messages), sorted(a.Approvers)
	return a
}

func (a *Approval) add(r *v1alpha1.ApprovalRequirement) {
	if len(a.Causes) == 0 {
		a.ExpiresSeconds = *r.ExpiresSeconds
	}
	a.Causes, a.Approvers = append(a.Causes, r.Name), append(a.Approvers, r.Approvers...)
	a.Minimum, a.ExpiresSeconds = max(a.Minimum, *r.Minimum), min(a.ExpiresSeconds, *r.ExpiresSeconds)
}

// sorted are the texts of a list, each once.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// judgeRules asks the policy's rules, and works out what needs approval.
func (s *Snapshot) judgeRules(policy *Policy, action *guards.Action) (*Approval, error) {
	in := &celrules.Input{Call: s.Call, Action: action, Environment: s.Effective()}
	if s.Requester.Vouched {
		in.Caller = s.Call.Spec.RequestedBy
	}
	if s.Call.Spec.SessionRef != nil {
		in.Session = s.Session.Object
	}
	verdict := policy.rules.Evaluate(in)
	if verdict.Denial != nil {
		return nil, denied(verdict.Denial)
	}
	approval := policy.approvalFor(action, verdict.Approval)
	if approval == nil || in.Caller != nil && in.Caller.Username != "" {
		return approval, nil
	}
	return nil, denied(s.explain(&guards.Denial{
		Reason: v1alpha1.ReasonAgentNotAllowed,
		Message: "the call needs approval, and its requester is unknown, so that nobody can tell whether somebody approves a call of their own: " +
			"install the admission policies",
	}))
}
