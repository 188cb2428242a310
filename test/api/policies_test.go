package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestPoliciesThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	valid := func(change func(*v1alpha1.ExecutionPolicySpec)) client.Object {
		policy := &v1alpha1.ExecutionPolicy{}
		change(&policy.Spec)
		return policy
	}
	seconds := func(d, m int32) func(*v1alpha1.ExecutionPolicySpec) {
		return func(s *v1alpha1.ExecutionPolicySpec) {
			s.Timeouts = &v1alpha1.TimeoutsPolicy{}
			if d > 0 {
				s.Timeouts.DefaultSeconds = &d
			}
			if m > 0 {
				s.Timeouts.MaxSeconds = &m
			}
		}
	}
	artifacts := func(count int32, bytes int64) func(*v1alpha1.ExecutionPolicySpec) {
		return func(s *v1alpha1.ExecutionPolicySpec) {
			s.Output = &v1alpha1.OutputPolicy{Artifacts: &v1alpha1.ArtifactsPolicy{MaxCount: &count, MaxBytes: &bytes, MaxTotalBytes: &bytes}}
		}
	}
	for name, a := range map[string]attempt{
		"nothing":              {valid(func(*v1alpha1.ExecutionPolicySpec) {}), ""},
		"both timeouts":        {valid(seconds(10, 20)), ""},
		"default above max":    {valid(seconds(30, 20)), ""},
		"default above 600":    {valid(seconds(700, 0)), ""},
		"max under 120":        {valid(seconds(0, 60)), ""},
		"an empty prefix":      {valid(func(s *v1alpha1.ExecutionPolicySpec) { s.EnvBlocklist = []string{""} }), "spec.envBlocklist[0]"},
		"an unknown access":    {valid(func(s *v1alpha1.ExecutionPolicySpec) { s.Access = "open" }), "spec.access"},
		"a star in the middle": {valid(func(s *v1alpha1.ExecutionPolicySpec) { s.ProtectedEnv = []string{"A*B"} }), "spec.protectedEnv[0]"},
		"the most output": {valid(func(s *v1alpha1.ExecutionPolicySpec) {
			s.Output = &v1alpha1.OutputPolicy{MaxBytesPerStream: ptr.To(int32(262144))}
		}), ""},
		"too much output": {valid(func(s *v1alpha1.ExecutionPolicySpec) {
			s.Output = &v1alpha1.OutputPolicy{MaxBytesPerStream: ptr.To(int32(262145))}
		}), "spec.output.maxBytesPerStream"},
		"the most artifacts":  {valid(artifacts(100, 1<<30)), ""},
		"no artifacts":        {valid(artifacts(0, 1)), ""},
		"too many artifacts":  {valid(artifacts(101, 1)), "spec.output.artifacts.maxCount"},
		"too large artifacts": {valid(artifacts(1, 1<<30+1)), "spec.output.artifacts.max"},
	} {
		t.Run(name, func(t *testing.T) { s.attempt(t, a) })
	}
}

// An empty list isn't an unset one, also after a round trip through a Go client.
func TestEmptyListsStayEmpty(t *testing.T) {
	s := newSpace(t)
	policy := &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("empty-%s", s.namespace)},
		Spec: v1alpha1.ExecutionPolicySpec{
			EnvBlocklist: []string{}, ProtectedEnv: []string{},
			Code: &v1alpha1.CodePolicy{Languages: []string{}, DeniedModules: []string{}},
		},
	}
	s.create(policy)
	read := &v1alpha1.ExecutionPolicy{}
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(policy), read); err != nil {
		t.Fatal(err)
	}
	spec := read.Spec
	if spec.EnvBlocklist == nil || spec.ProtectedEnv == nil || spec.Code.Languages == nil || spec.Code.DeniedModules == nil {
		t.Errorf("an empty list came back unset: %+v %+v", spec, spec.Code)
	}
}

func TestNetworksThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	with := func(n v1alpha1.NetworkRules) client.Object {
		return &v1alpha1.ExecutionPolicy{Spec: v1alpha1.ExecutionPolicySpec{Network: &n}}
	}
	hosts := func(n int) []v1alpha1.AllowedHost {
		return slices.Repeat([]v1alpha1.AllowedHost{{Host: "a.test"}}, n)
	}
	for name, a := range map[string]attempt{
		"no mode":            {with(v1alpha1.NetworkRules{}), ""},
		"a list":             {with(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: "*.example.com", Ports: []int32{1, 65535}}}}), ""},
		"256 hosts":          {with(v1alpha1.NetworkRules{Allowed: hosts(256)}), ""},
		"257 hosts":          {with(v1alpha1.NetworkRules{Allowed: hosts(257)}), "spec.network.allowed"},
		"another mode":       {with(v1alpha1.NetworkRules{Mode: "Closed"}), "spec.network.mode"},
		"a host that's none": {with(v1alpha1.NetworkRules{Allowed: []v1alpha1.AllowedHost{{}}}), "spec.network.allowed[0].host"},
		"port 0":             {with(v1alpha1.NetworkRules{Allowed: []v1alpha1.AllowedHost{{Host: "a", Ports: []int32{0}}}}), "spec.network.allowed[0].ports[0]"},
		"port 65536":         {with(v1alpha1.NetworkRules{Allowed: []v1alpha1.AllowedHost{{Host: "a", Ports: []int32{65536}}}}), "spec.network.allowed[0].ports[0]"},
		"an empty CIDR":      {with(v1alpha1.NetworkRules{DeniedCIDRs: []string{""}}), "spec.network.deniedCIDRs[0]"},
	} {
		t.Run(name, func(t *testing.T) { s.attempt(t, a) })
	}
}

func TestRulesApprovalsAndExamplesThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	rule := v1alpha1.PolicyRule{Name: "r", Expression: "true", Effect: v1alpha1.RuleDeny}
	example := v1alpha1.PolicyExample{Name: "e", Call: runtime.RawExtension{Raw: []byte(`{"tool":{"name":"x","arguments":{"a":{"b":1}}}}`)}, Expect: v1alpha1.ExpectDeny, Reason: v1alpha1.ReasonUnknownTool}
	with := func(change func(*v1alpha1.ExecutionPolicySpec)) client.Object {
		policy := &v1alpha1.ExecutionPolicy{}
		policy.Spec.Rules, policy.Spec.Examples = []v1alpha1.PolicyRule{rule}, []v1alpha1.PolicyExample{example}
		policy.Spec.Approvals = []v1alpha1.ApprovalRequirement{{Name: "a", Match: v1alpha1.ApprovalMatch{Actions: []v1alpha1.ActionType{v1alpha1.ActionShell}}}}
		change(&policy.Spec)
		return policy
	}
	for name, a := range map[string]attempt{
		"one of each":           {with(func(*v1alpha1.ExecutionPolicySpec) {}), ""},
		"an empty match":        {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Approvals[0].Match = v1alpha1.ApprovalMatch{} }), ""},
		"no names":              {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Approvals = make([]v1alpha1.ApprovalRequirement, 2) }), ""},
		"approvals of a name":   {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Approvals = append(s.Approvals, s.Approvals[0]) }), "two requirements have the same name"},
		"two of a name":         {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Rules = append(s.Rules, rule) }), "spec.rules[1]"},
		"another effect":        {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Rules[0].Effect = "Warn" }), "spec.rules[0].effect"},
		"a long expression":     {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Rules[0].Expression = strings.Repeat("!", 4097) }), "spec.rules[0].expression"},
		"nobody approves":       {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Approvals[0].Minimum = ptr.To(int32(0)) }), "spec.approvals[0].minimum"},
		"another type":          {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Approvals[0].Match.Actions[0] = "Tool" }), "spec.approvals[0].match.actions[0]"},
		"another verdict":       {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Examples[0].Expect = "Maybe" }), "spec.examples[0].expect"},
		"a reason of no denial": {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Examples[0].Expect = v1alpha1.ExpectAllow }), "reason goes with expect: Deny only"},
		"a call that is none":   {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Examples[0].Call.Raw = []byte(`"ls"`) }), "spec.examples[0].call"},
		"65 examples":           {with(func(s *v1alpha1.ExecutionPolicySpec) { s.Examples = slices.Repeat(s.Examples, 65) }), "spec.examples"},
	} {
		t.Run(name, func(t *testing.T) { s.attempt(t, a) })
	}
}
