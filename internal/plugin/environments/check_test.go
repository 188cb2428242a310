package environments

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestCheckShowsTheQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		queues       []string
		wanted, want string
	}{
		"none":                   {},
		"the environment's":      {queues: []string{"q", "a"}, want: "q"},
		"the same":               {queues: []string{"q"}, wanted: "q", want: "q"},
		"the call's":             {queues: []string{"q", "a", "b"}, wanted: "b", want: "b, chosen by the call"},
		"one that isn't offered": {queues: []string{"q", "a"}, wanted: "b", want: "q: the environment doesn't offer b"},
		"one where none is":      {wanted: "b", want: "none: the environment doesn't offer b"},
	} {
		env, v := &v1alpha1.ExecutionEnvironment{}, &verdict{call: &v1alpha1.ToolCall{}}
		env.Spec.Queues = tc.queues
		v.call.Labels = map[string]string{jobspec.LabelQueue: tc.wanted}
		if got := v.queue(env); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// The result of check as an object has what its text has.
func TestCheckAsAnObject(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls"}} })
	f.Environment("tools", true)
	for line, want := range map[string]plugintest.Printed{
		"-o jsonpath={.kind},{.allowed},{.denied},{.tool},{.environment},{.command},{.walls.Network},{.timeoutSeconds} -- ls x": {Out: "Check,yes,false,ls,tools,ls x,held by the runner: every host outside the cluster that isn't denied,120"},
		"-o jsonpath={.allowed},{.denied},{.reason} -- git":                                                                     {Out: "no,true,BinaryNotAllowed", Code: 126},
		"-o jsonpath={.allowed},{.denied},{.reason} --environment none -- ls":                                                   {Out: "no,false,EnvironmentNotFound", Code: 125},
		"-o name -- ls": {Out: "check.cli.toolcall.dev/check\n"},
	} {
		if got := f.Run(append([]string{"check"}, strings.Fields(line)...)...); got != want {
			t.Errorf("check %s: %+v", line, got)
		}
	}
}
