package decide_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/network"
)

// networked is a policy with network rules.
func networked(n v1alpha1.NetworkRules) change {
	spec := open()
	spec.Network = &n
	return under(spec)
}

// reaching narrows the call's network.
func reaching(hosts ...string) change {
	return func(s *decide.Snapshot) { s.Call.Spec.Network = &v1alpha1.CallNetwork{Hosts: hosts} }
}

var python = v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "print(1)"}}

func TestANetworkIsThePolicysAndNarrower(t *testing.T) {
	t.Parallel()
	listed := networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, DeniedCIDRs: []string{"10.0.0.0/8"}, Allowed: []v1alpha1.AllowedHost{
		{Host: "*.example.com"}, {Host: "192.0.2.0/24", Ports: []int32{22, 443}},
	}})
	allowed := []network.Entry{{Host: "*.example.com"}, {Host: "192.0.2.0/24", Ports: []int{22, 443}}}
	unset := networked(v1alpha1.NetworkRules{})
	for name, tc := range map[string]struct {
		changes []change
		denied  bool
		want    *network.Rules
	}{
		"a policy without network":           {nil, false, &network.Rules{Mode: network.Open, Implied: true}},
		"code without network":               {[]change{runs(python)}, true, nil},
		"unrestricted":                       {[]change{networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted})}, false, nil},
		"unrestricted, for code":             {[]change{networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}), runs(python)}, false, nil},
		"a policy without network, narrowed": {[]change{reaching("example.com")}, false, &network.Rules{Mode: network.Open, Hosts: []string{"example.com"}}},
		"a list":                             {[]change{listed}, false, &network.Rules{Mode: network.Listed, DeniedCIDRs: []string{"10.0.0.0/8"}, Allowed: allowed}},
		"a list, for code too":               {[]change{listed, runs(python)}, false, &network.Rules{Mode: network.Listed, DeniedCIDRs: []string{"10.0.0.0/8"}, Allowed: allowed}},
		"a narrower list":                    {[]change{listed, reaching("a.example.com", "192.0.2.7")}, false, &network.Rules{Mode: network.Listed, DeniedCIDRs: []string{"10.0.0.0/8"}, Allowed: allowed, Hosts: []string{"192.0.2.7", "a.example.com"}}},
		"no mode":                            {[]change{unset}, false, &network.Rules{Mode: network.Open}},
		"no mode, for code":                  {[]change{unset, runs(python)}, true, nil},
		"none":                               {[]change{networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkNone})}, true, nil},
		"a file action, which connects to nothing": {[]change{listed, runs(v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "/tmp/x"}})}, false, nil},
		"everything": {[]change{networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkOpen, AllowInCluster: ptr.To(true), UDP: ptr.To(true)})}, false, &network.Rules{Mode: network.Open, AllowInCluster: true, UDP: true}},
	} {
		d := mustDecide(t, snapshot(tc.changes...))
		if diff := cmp.Diff(tc.want, d.Network); diff != "" || d.DenyNetwork != tc.denied {
			t.Errorf("%s: denied %t, network (-want +got)\n%s", name, d.DenyNetwork, diff)
		}
		a, err := d.Assignment(snapshot(tc.changes...).Call)
		if err != nil {
			t.Fatal(err)
		}
		if a.DenyNetwork != tc.denied || (a.Network != nil) != (tc.want != nil) {
			t.Errorf("%s: the runner is told %t, %+v", name, a.DenyNetwork, a.Network)
		}
	}
}

func TestHostsThatThePolicyDoesNotCoverAreDenied(t *testing.T) {
	t.Parallel()
	listed := networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: "*.example.com"}}})
	for name, tc := range map[string]struct {
		changes []change
		part    string
	}{
		"another name":         {[]change{listed, reaching("example.org")}, "network.hosts[0]: example.org isn't covered by the policy's network.allowed"},
		"the name itself":      {[]change{listed, reaching("example.com")}, "isn't covered"},
		"a metadata address":   {[]change{networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkOpen}), reaching("169.254.169.254")}, "169.254.169.254"},
		"no host":              {[]change{listed, reaching("https://a.example.com/")}, "is a URL"},
		"code that didn't ask": {[]change{runs(python), reaching("example.com")}, "set code.networkAccess of the call"},
		"mode Unrestricted":    {[]change{networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}), reaching("example.com")}, "network.mode Unrestricted"},
		"mode None":            {[]change{networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkNone}), reaching("example.com")}, "network.mode is None"},
	} {
		_, err := decide.Decide(snapshot(tc.changes...))
		var refusal *decide.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != v1alpha1.ReasonNetworkNotAllowed || !strings.Contains(refusal.Message, tc.part) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The status of a session's call says the mode and the hosts, and the record of it stays small.
func TestAHandedOverDecisionKeepsWhatTheStatusSays(t *testing.T) {
	t.Parallel()
	var many []v1alpha1.AllowedHost
	var first []string
	for i := range 2 * v1alpha1.MaxReachableHosts {
		host := fmt.Sprintf("h%d.test", i)
		many = append(many, v1alpha1.AllowedHost{Host: host})
		if i < v1alpha1.MaxReachableHosts {
			first = append(first, host)
		}
	}
	listed := networked(v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: many})
	for name, tc := range map[string]struct {
		changes []change
		want    *network.Rules
		denied  bool
	}{
		"a list":          {[]change{listed}, &network.Rules{Mode: network.Listed, Hosts: first}, false},
		"a narrowed list": {[]change{listed, reaching("h30.test")}, &network.Rules{Mode: network.Listed, Hosts: []string{"h30.test"}}, false},
		"everything":      {nil, &network.Rules{Mode: network.Open}, false},
		"nothing":         {[]change{runs(python)}, nil, true},
	} {
		d := mustDecide(t, snapshot(tc.changes...))
		kept := d.HandedOver(d.Created())
		if diff := cmp.Diff(tc.want, kept.Network); diff != "" || kept.DenyNetwork != tc.denied {
			t.Errorf("%s: denied %t (-want +got)\n%s", name, kept.DenyNetwork, diff)
		}
		if kept.Network != nil {
			if diff := cmp.Diff(decide.ReachableHosts(d.Network), decide.ReachableHosts(kept.Network)); diff != "" {
				t.Errorf("%s: the status would say something else: %s", name, diff)
			}
		}
	}
}
