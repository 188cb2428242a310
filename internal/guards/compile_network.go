package guards

import (
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/network"
)

// compileNetwork checks the network's rules. Decisions about connections are made in the pod.
func (p *Policy) compileNetwork(c *compiler) {
	rules := c.spec.Network
	if rules == nil {
		return
	}
	if rules.Mode == v1alpha1.NetworkUnrestricted {
		if len(rules.Allowed) > 0 || len(rules.DeniedCIDRs) > 0 {
			c.fail("spec.network.mode: Unrestricted holds calls to neither allowed nor deniedCIDRs: leave them out, or set mode Listed or Open")
		}
		p.warnings = append(p.warnings, "network.mode is Unrestricted, and nothing holds what calls connect to: use another mode, or NetworkPolicies")
		return
	}
	if rules.Mode != v1alpha1.NetworkNone && isTrue(rules.UDP) {
		p.warnings = append(p.warnings, "network.udp is true, and nothing holds UDP to what is allowed and denied: leave it out, or use NetworkPolicies")
	}
	compiled := NetworkRules(rules, v1alpha1.NetworkListed)
	p.warnings = append(p.warnings, network.Warnings(compiled)...)
	if err := network.Validate(compiled); err != nil {
		c.fail("spec.network.%w", err)
	}
}

// codeHasNetwork says that code calls can have network. A mode holds for them too.
func codeHasNetwork(spec *v1alpha1.ExecutionPolicySpec, code *v1alpha1.CodePolicy) bool {
	if spec.Network != nil && spec.Network.Mode != "" {
		return spec.Network.Mode != v1alpha1.NetworkNone
	}
	return isTrue(code.NetworkAccess)
}

// NetworkRules are a policy's, in the mode that is given where the policy has none.
func NetworkRules(n *v1alpha1.NetworkRules, mode v1alpha1.NetworkMode) *network.Rules {
	if n.Mode != "" {
		mode = n.Mode
	}
	r := &network.Rules{
		Mode: network.Mode(mode), DeniedCIDRs: n.DeniedCIDRs,
		AllowInCluster: isTrue(n.AllowInCluster), UDP: isTrue(n.UDP),
	}
	for _, host := range n.Allowed {
		e := network.Entry{Host: host.Host}
		for _, port := range host.Ports {
			e.Ports = append(e.Ports, int(port))
		}
		r.Allowed = append(r.Allowed, e)
	}
	return r
}

func isTrue(value *bool) bool { return value != nil && *value }
