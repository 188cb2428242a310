package decide

import (
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/network"
)

// networkOf decides about a call's network: rules where the policy has some and the mode isn't None. denied says that it has
// none.
func networkOf(object *v1alpha1.ExecutionPolicy, action *guards.Action, call *v1alpha1.ToolCall) (rules *network.Rules, denied bool, err error) {
	var hosts []string
	if call.Spec.Network != nil {
		hosts = call.Spec.Network.Hosts
	}
	if action.Type == v1alpha1.ActionFile {
		return nil, false, nil
	}
	policy := networkRules(object)
	if policy.Mode == v1alpha1.NetworkUnrestricted {
		if len(hosts) > 0 {
			return nil, false, deny(v1alpha1.ReasonNetworkNotAllowed,
				"network.hosts can't narrow the call's network, as its policy has network.mode Unrestricted: leave hosts out, or set mode Open in the policy")
		}
		return nil, false, nil
	}
	mode := v1alpha1.NetworkOpen
	if action.Type == v1alpha1.ActionCode && !action.Network {
		mode = v1alpha1.NetworkNone
	}
	if policy.Mode == "" && mode == v1alpha1.NetworkNone && len(hosts) > 0 {
		return nil, false, deny(v1alpha1.ReasonNetworkNotAllowed,
			"the call narrows its network by network.hosts, and code that doesn't ask for the network has none: set code.networkAccess of the call, or leave hosts out")
	}
	rules = guards.NetworkRules(policy, mode)
	rules.Implied = (object == nil || object.Spec.Network == nil) && len(hosts) == 0 && action.Type != v1alpha1.ActionCode
	narrowed, err := network.Narrow(rules, hosts)
	if err != nil {
		return nil, false, deny(v1alpha1.ReasonNetworkNotAllowed, "network.%s", err.Error())
	}
	if narrowed.Mode == network.None {
		return nil, true, nil
	}
	return narrowed, false, nil
}

// ReachableHosts are the first of the hosts that rules list, the call's if it narrowed them.
func ReachableHosts(rules *network.Rules) []string {
	hosts := rules.Hosts
	if len(hosts) == 0 && rules.Mode == network.Listed {
		for _, entry := range rules.Allowed {
			hosts = append(hosts, entry.Host)
		}
	}
	return hosts[:min(len(hosts), v1alpha1.MaxReachableHosts)]
}

// networkRules are a policy's, or those without one.
func networkRules(object *v1alpha1.ExecutionPolicy) *v1alpha1.NetworkRules {
	if object == nil || object.Spec.Network == nil {
		return &v1alpha1.NetworkRules{}
	}
	return object.Spec.Network
}

// RestrictsNetwork says that pods for calls under a policy need what the runner needs to decide about connections.
func RestrictsNetwork(object *v1alpha1.ExecutionPolicy) bool {
	return networkRules(object).Mode != v1alpha1.NetworkUnrestricted
}
