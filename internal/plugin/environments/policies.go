package environments

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/policy"
)

// allows summarizes what the policy of an environment allows.
func allows(policies *policy.Set, env *v1alpha1.ExecutionEnvironment) string {
	policy, err := policies.For(env)
	switch {
	case apierrors.IsForbidden(err):
		return "(no permission to read policies)"
	case err != nil:
		return "nothing: " + err.Error()
	case policy == nil:
		return policySummary(&v1alpha1.ExecutionPolicySpec{})
	default:
		return policySummary(&policy.Spec)
	}
}

// policySummary lists what a policy allows.
func policySummary(p *v1alpha1.ExecutionPolicySpec) string {
	programs := "any program"
	if b := p.Binaries; b != nil && (len(b.Allowed) > 0 || b.Mode == v1alpha1.BinariesEnforced) {
		programs = JoinFirst(b.Allowed)
	}
	parts := []string{programs}
	if p.Shell != nil && p.Shell.Enabled != nil && *p.Shell.Enabled {
		parts = append(parts, "shell")
	}
	if c := p.Code; c == nil || c.Enabled == nil || *c.Enabled {
		parts = append(parts, languages(p.Code))
	}
	return strings.Join(parts, "; ")
}

// policyNetwork says what of the network a policy gives to commands; nil for the built-in defaults.
func policyNetwork(p *v1alpha1.ExecutionPolicy) string {
	rules := v1alpha1.NetworkRules{}
	if p != nil && p.Spec.Network != nil {
		rules = *p.Spec.Network
	}
	var hosts []string
	for _, host := range rules.Allowed {
		hosts = append(hosts, host.Host)
	}
	inCluster := ptr.Deref(rules.AllowInCluster, false)
	switch rules.Mode {
	case v1alpha1.NetworkNone:
		return "none"
	case v1alpha1.NetworkUnrestricted:
		return "not restricted by the runner"
	case v1alpha1.NetworkListed:
		if len(hosts) == 0 {
			return "no host"
		}
		return JoinFirst(hosts)
	case v1alpha1.NetworkOpen:
	}
	text := "every host outside the cluster that isn't denied"
	if inCluster {
		text = "every host that isn't denied"
	} else if len(hosts) > 0 {
		text += ", and " + JoinFirst(hosts)
	}
	if rules.Mode == "" {
		text += "; code has none, unless policy and call allow it"
	}
	return text
}

func languages(code *v1alpha1.CodePolicy) string {
	switch {
	case code == nil || code.Languages == nil:
		return "code in python"
	case len(code.Languages) == 0:
		return "code in any language"
	default:
		return "code in " + JoinFirst(code.Languages)
	}
}

// JoinFirst joins the first names of a list.
func JoinFirst(names []string) string {
	const limit = 6
	if len(names) == 0 {
		return "no program"
	}
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}
