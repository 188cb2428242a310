package plugin

import (
	"net"
	"strconv"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/network"
)

// networkFields say what of the network a call could reach, and what was refused to it.
func networkFields(call *v1alpha1.ToolCall) []field {
	var fields []field
	if n := call.Spec.Network; n != nil {
		fields = append(fields, field{"Narrowed to", strings.Join(n.Hosts, ", ")})
	}
	n := call.Status.Network
	if n == nil {
		return fields
	}
	fields = append(fields, field{"Mode", string(n.Mode)})
	if call.Spec.Network == nil {
		fields = append(fields, field{"Allowed", strings.Join(n.Allowed, ", ")})
	}
	for _, d := range n.Denied {
		fields = append(fields, field{"Refused", deniedText(d) + times(d.Count)})
	}
	if n.OmittedDenied > 0 {
		fields = append(fields, field{"Refused", "and other hosts" + times(n.OmittedDenied)})
	}
	return fields
}

// deniedText is a host with the port, if there was one.
func deniedText(d v1alpha1.DeniedHost) string {
	if d.Port == 0 {
		return d.Host + " (lookup)"
	}
	return net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
}

// redactionFields say where values of Secrets were replaced, and how often.
func redactionFields(all []v1alpha1.Redaction) []field {
	var fields []field
	for _, r := range all {
		fields = append(fields, field{r.Name, "in " + strings.ToLower(string(r.Stream)) + times(r.Count)})
	}
	return fields
}

// wasRefused reports whether a program or a host was refused to a call's command, so that the message says what would pass.
func wasRefused(s *v1alpha1.ToolCallStatus) bool {
	return len(s.Refused) > 0 || s.Network != nil && len(s.Network.Denied) > 0
}

// network says which network the call would have, as the operator decides it.
func (v *evaluation) network() string {
	switch rules := v.decision.Network; {
	case v.decision.DenyNetwork:
		return "none, held by a filter of system calls"
	case rules == nil:
		return "same as the pod"
	case len(rules.Hosts) > 0:
		return "held by the runner: " + joinFirst(rules.Hosts)
	case rules.Mode == network.Open && rules.AllowInCluster:
		return "held by the runner: every host that isn't denied"
	case rules.Mode == network.Open:
		return "held by the runner: every host outside the cluster that isn't denied"
	case len(rules.Allowed) == 0:
		return "held by the runner: no host"
	default:
		hosts := make([]string, len(rules.Allowed))
		for i := range rules.Allowed {
			hosts[i] = rules.Allowed[i].Host
		}
		return "held by the runner: " + joinFirst(hosts)
	}
}
