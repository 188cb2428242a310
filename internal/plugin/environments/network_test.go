package environments

import (
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestCheckShowsTheNetwork(t *testing.T) {
	t.Parallel()
	listed := &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: "a.example.com"}, {Host: "*.b.example.com"}}}
	for name, c := range map[string]struct {
		network *v1alpha1.NetworkRules
		args    []string
		code    int
		want    string
	}{
		"no rules":                      {nil, []string{"--", "ls"}, 0, "Network: held by the runner: every host outside the cluster that isn't denied"},
		"what the pod has":              {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}, []string{"--", "ls"}, 0, "Network: same as the pod"},
		"a list":                        {listed, []string{"--", "ls"}, 0, "Network: held by the runner: a.example.com, *.b.example.com"},
		"an empty list":                 {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed}, []string{"--", "ls"}, 0, "Network: held by the runner: no host"},
		"a list that the call narrows":  {listed, []string{"--network-host", "X.b.example.com", "--", "ls"}, 0, "Network: held by the runner: x.b.example.com"},
		"code under a list":             {listed, []string{"--code", "python", "-f", "-"}, 0, "Network: held by the runner: a.example.com"},
		"everything but what is denied": {&v1alpha1.NetworkRules{}, []string{"--", "ls"}, 0, "Network: held by the runner: every host outside the cluster that isn't denied"},
		"code that doesn't ask":         {&v1alpha1.NetworkRules{}, []string{"--code", "python", "-f", "-"}, 0, "Network: none, held by a filter"},
		"none":                          {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkNone}, []string{"--", "ls"}, 0, "Network: none, held by a filter"},
		"a host beyond the list":        {listed, []string{"--network-host", "c.example.com", "--", "ls"}, cli.CodeDenied, "c.example.com isn't covered by the policy's network.allowed: add {host: c.example.com} there, or leave it out"},
		"a host without a list":         {nil, []string{"--network-host", "c.example.com", "--", "ls"}, 0, "Network: held by the runner: c.example.com"},
		"a host where nothing is held":  {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}, []string{"--network-host", "c.example.com", "--", "ls"}, cli.CodeDenied, "NetworkNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.New(t)
			f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Network = c.network })
			f.Environment("tools", true)
			f.Run(append([]string{"check"}, c.args...)...).Expect(t, c.code, c.want)
		})
	}
}
