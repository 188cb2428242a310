package decide_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// withRules is an open policy with rules and requirements.
func withRules(rules []v1alpha1.PolicyRule, approvals ...v1alpha1.ApprovalRequirement) v1alpha1.ExecutionPolicySpec {
	spec := open()
	spec.Rules, spec.Approvals = rules, approvals
	return spec
}

func asks(name, expression, message string) v1alpha1.PolicyRule {
	return v1alpha1.PolicyRule{Name: name, Expression: expression, Effect: v1alpha1.RuleRequireApproval, Message: message}
}

func requires(name string, match v1alpha1.ApprovalMatch, minimum, seconds int32, approvers ...string) v1alpha1.ApprovalRequirement {
	r := v1alpha1.ApprovalRequirement{Name: name, Match: match, Approvers: approvers}
	if minimum > 0 {
		r.Minimum, r.ExpiresSeconds = ptr.To(minimum), ptr.To(seconds)
	}
	return r
}

func TestWhichCallsNeedApproval(t *testing.T) {
	t.Parallel()
	push := asks("push", `action.commands.exists(c, c.name == "git" && "push" in c.args)`, "pushes")
	other := asks("other", `call.metadata.namespace == "ns"`, "")
	shells := v1alpha1.ApprovalMatch{Actions: []v1alpha1.ActionType{v1alpha1.ActionShell}}
	for name, c := range map[string]struct {
		spec   v1alpha1.ExecutionPolicySpec
		action v1alpha1.ToolCallSpec
		want   *decide.Approval
	}{
		"nothing asks":            {withRules([]v1alpha1.PolicyRule{push}), shell("git fetch"), nil},
		"an empty match":          {withRules(nil, requires("all", v1alpha1.ApprovalMatch{}, 0, 0)), shell("ls"), &decide.Approval{Causes: []string{"all"}, Minimum: 1, ExpiresSeconds: 900}},
		"without a name":          {withRules(nil, requires("a", shells, 0, 0), requires("", v1alpha1.ApprovalMatch{}, 0, 0), requires("", shells, 0, 0)), program("ls"), &decide.Approval{Causes: []string{"approvals[1]"}, Minimum: 1, ExpiresSeconds: 900}},
		"an action of the type":   {withRules(nil, requires("all", shells, 0, 0, "ops")), shell("ls"), &decide.Approval{Causes: []string{"all"}, Approvers: []string{"ops"}, Minimum: 1, ExpiresSeconds: 900}},
		"an action of no type":    {withRules(nil, requires("all", shells, 0, 0)), program("ls"), nil},
		"a tool of the list":      {withRules(nil, requires("t", v1alpha1.ApprovalMatch{Tools: []string{"bash", "rm"}}, 2, 60)), program("rm"), &decide.Approval{Causes: []string{"t"}, Minimum: 2, ExpiresSeconds: 60}},
		"a tool of another name":  {withRules(nil, requires("t", v1alpha1.ApprovalMatch{Tools: []string{"bash"}}, 2, 60)), program("ls"), nil},
		"of two fields, only one": {withRules(nil, requires("t", v1alpha1.ApprovalMatch{Actions: shells.Actions, Tools: []string{"rm"}}, 0, 0)), program("rm"), nil},
		"a rule that nothing names": {
			withRules([]v1alpha1.PolicyRule{push, other}), shell("git push"),
			&decide.Approval{Causes: []string{"other", "push"}, Messages: []string{"pushes"}, Minimum: 1, ExpiresSeconds: 900},
		},
		"a rule that a requirement names": {
			withRules([]v1alpha1.PolicyRule{push}, requires("leads", v1alpha1.ApprovalMatch{Rules: []string{"push"}}, 2, 3600, "leads")), shell("git push"),
			&decide.Approval{Causes: []string{"leads", "push"}, Messages: []string{"pushes"}, Approvers: []string{"leads"}, Minimum: 2, ExpiresSeconds: 3600},
		},
		"a rule that isn't true": {
			withRules([]v1alpha1.PolicyRule{push}, requires("leads", v1alpha1.ApprovalMatch{Rules: []string{"push"}}, 2, 3600)), shell("git fetch"), nil,
		},
		"a rule whose requirement is for other calls": {
			withRules([]v1alpha1.PolicyRule{push}, requires("leads", v1alpha1.ApprovalMatch{Actions: []v1alpha1.ActionType{v1alpha1.ActionCode}, Rules: []string{"push"}}, 2, 60)), shell("git push"),
			&decide.Approval{Causes: []string{"push"}, Messages: []string{"pushes"}, Minimum: 1, ExpiresSeconds: 900},
		},
		"the most and the least of several": {
			withRules([]v1alpha1.PolicyRule{push, other}, requires("b", shells, 1, 60, "x", "y"), requires("a", v1alpha1.ApprovalMatch{}, 3, 7200, "x"), requires("c", v1alpha1.ApprovalMatch{Rules: []string{"other"}}, 2, 30)),
			shell("git push"),
			&decide.Approval{Causes: []string{"a", "b", "c", "other", "push"}, Messages: []string{"pushes"}, Approvers: []string{"x", "y"}, Minimum: 3, ExpiresSeconds: 30},
		},
	} {
		got := mustDecide(t, snapshot(under(c.spec), runs(c.action))).Approval
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNobodyApprovesForAnUnknownRequester(t *testing.T) {
	t.Parallel()
	all := under(withRules(nil, requires("all", v1alpha1.ApprovalMatch{}, 0, 0)))
	unnamed := func(s *decide.Snapshot) { s.Call.Spec.RequestedBy = &v1alpha1.Requester{} }
	for name, changes := range map[string][]change{"no name": both(all, unnamed), "not vouched for": both(all, unvouched("x"))} {
		if r := refusalOf(t, snapshot(changes...)); r.Reason != v1alpha1.ReasonAgentNotAllowed || !r.Denied || !strings.Contains(r.Message, "nobody can tell") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestRulesComeAfterTheGuards(t *testing.T) {
	t.Parallel()
	spec := withRules([]v1alpha1.PolicyRule{{Name: "none", Expression: "true", Effect: v1alpha1.RuleDeny}})
	if r := refusalOf(t, snapshot(under(spec))); r.Reason != v1alpha1.ReasonDeniedByRule || !r.Denied || r.Environment != "env" {
		t.Errorf("a rule: %+v", r)
	}
	spec.Shell.Enabled = ptr.To(false)
	if r := refusalOf(t, snapshot(under(spec))); r.Reason != v1alpha1.ReasonShellDisabled {
		t.Errorf("a guard before it: %+v", r)
	}
	inTheSession := withRules([]v1alpha1.PolicyRule{{Name: "r", Expression: `session != null && session.name == "work" && caller.username == "alice"`, Effect: v1alpha1.RuleDeny}})
	if r := refusalOf(t, snapshot(inSession(), under(inTheSession))); r.Reason != v1alpha1.ReasonDeniedByRule {
		t.Errorf("in a session: %+v", r)
	}
}

func TestPoliciesWhoseRulesAndApprovalsAreInvalid(t *testing.T) {
	t.Parallel()
	for want, spec := range map[string]v1alpha1.ExecutionPolicySpec{
		"spec.rules[r]: expression: 1:":                             withRules([]v1alpha1.PolicyRule{{Name: "r", Expression: "nothing", Effect: v1alpha1.RuleDeny}}),
		`spec.approvals[a].match.rules: spec.rules has no rule "x"`: withRules(nil, requires("a", v1alpha1.ApprovalMatch{Rules: []string{"x"}}, 0, 0)),
		`the effect of rule "d" is not RequireApproval`: withRules([]v1alpha1.PolicyRule{{Name: "d", Expression: "true", Effect: v1alpha1.RuleDeny}},
			requires("a", v1alpha1.ApprovalMatch{Rules: []string{"d"}}, 0, 0)),
		"spec.approvals[a].minimum: 9":        withRules(nil, requires("a", v1alpha1.ApprovalMatch{}, 9, 60)),
		"spec.approvals[1].minimum: 9":        withRules(nil, requires("a", v1alpha1.ApprovalMatch{}, 0, 0), requires("", v1alpha1.ApprovalMatch{}, 9, 60)),
		"spec.approvals[a].expiresSeconds: 0": withRules(nil, requires("a", v1alpha1.ApprovalMatch{}, 1, 0)),
		"another requirement has the same":    withRules(nil, requires("a", v1alpha1.ApprovalMatch{}, 0, 0), requires("a", v1alpha1.ApprovalMatch{}, 0, 0)),
		"17 requirements are too many":        withRules(nil, make([]v1alpha1.ApprovalRequirement, 17)...),
	} {
		if r := refusalOf(t, snapshot(under(spec))); r.Reason != v1alpha1.ReasonInvalidPolicy || !strings.Contains(r.Message, want) {
			t.Errorf("%s: %+v", want, r)
		}
	}
}
