package plugin

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// The result of check as an object has what its text has.
func TestCheckAsAnObject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls"}} })
	f.environment("tools", true)
	for line, want := range map[string]printed{
		"-o jsonpath={.kind},{.allowed},{.denied},{.tool},{.environment},{.command},{.walls.Network},{.timeoutSeconds} -- ls x": {"Check,yes,false,ls,tools,ls x,held by the runner: every host outside the cluster that isn't denied,120", "", 0},
		"-o jsonpath={.allowed},{.denied},{.reason} -- git":                                                                     {"no,true,BinaryNotAllowed", "", 126},
		"-o jsonpath={.allowed},{.denied},{.reason} --environment none -- ls":                                                   {"no,false,EnvironmentNotFound", "", 125},
		"-o name -- ls": {"check.cli.toolcall.dev/check\n", "", 0},
	} {
		if got := f.run(append([]string{"check"}, strings.Fields(line)...)...); got != want {
			t.Errorf("check %s: %+v", line, got)
		}
	}
}
