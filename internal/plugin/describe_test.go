package plugin

import (
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// With -o, describe prints what it describes, and explain-denial what it found.
func TestDescriptionsAsObjects(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls"}} })
	f.Environment("tools", true)
	f.Environment("other", false)
	f.Deny("denied", v1alpha1.ReasonBinaryNotAllowed, "--", "git", "status")
	f.Run("session", "start", "dev", "--detach").Expect(t, 0)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"describe", "denied", "-o", "jsonpath={.kind} {.status.reason}"}, "ToolCall BinaryNotAllowed"},
		{[]string{"describe", "denied", "-o", "name"}, "toolcall.toolcall.dev/denied"},
		{[]string{"session", "describe", "dev", "-o", "jsonpath={.kind} {.metadata.name}"}, "ToolSession dev"},
		{[]string{"env", "describe", "tools", "-o", "jsonpath={.kind} {.metadata.name}"}, "ExecutionEnvironment tools"},
		{[]string{"env", "describe", "tools", "other", "-o", "jsonpath={.kind} {.items[*].metadata.name}"}, "ExecutionEnvironmentList tools other"},
		{[]string{"explain-denial", "denied", "-o", "jsonpath={.kind}: {.call}, {.rule}, {.youCan}, {.now}"},
			"Explanation: denied, spec.binaries, use a listed program, the same call from you would be denied for the same reason"},
	} {
		f.Run(tc.args...).Expect(t, 0, tc.want)
	}
	f.Run("describe", "denied", "-o", "xml").Expect(t, 1, "xml")
	f.Run("env", "describe", "tools", "gone", "-o", "yaml").Expect(t, 1, "gone")
}
