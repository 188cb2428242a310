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
	isCode := action.Type == v1alpha1.ActionCode
	if object == nil || object.Spec.Network == nil {
		if len(hosts) > 0 {
			return nil, false, deny(v1alpha1.ReasonNetworkNotAllowed,
				"the call narrows its network by network.hosts, and its policy has no network to narrow: leave hosts out, or set the policy's network")
		}
		return nil, isCode && !action.Network, nil
	}
	if action.Type == v1alpha1.ActionFile {
		return nil, false, nil
	}
	mode := v1alpha1.NetworkOpen
	if isCode && !action.Network {
		mode = v1alpha1.NetworkNone
	}
	rules = guards.NetworkRules(object.Spec.Network, mode)
	narrowed, err := network.Narrow(rules, hosts)
	if err != nil {
		return nil, false, deny(v1alpha1.ReasonNetworkNotAllowed, "network.%s", err.Error())
	}
	if narrowed.Mode == network.None {
		return nil, true, nil
	}
	return narrowed, false, nil
}

// RestrictsNetwork says that pods for calls under a policy need what the runner needs to decide about connections.
func RestrictsNetwork(object *v1alpha1.ExecutionPolicy) bool {
	return object != nil && object.Spec.Network != nil && object.Spec.Network.Mode != v1alpha1.NetworkNone
}
