package supervisor

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/runner"
)

// kubernetesHost is the variable through which the kubelet tells each container the API server's address.
const kubernetesHost = "KUBERNETES_SERVICE_HOST"

// networkOf adds to what the operator knows of a call's network what only the pod knows; nil for a call without rules. Without
// the node's addresses the rules can't be compiled, and the command isn't started.
func (e *Executor) networkOf(a *wire.Assignment) *runner.Network {
	if a.Network == nil {
		return nil
	}
	n := &runner.Network{Rules: a.Network.Rules, Nameservers: a.Network.Nameservers, Search: a.Network.Search, Hosts: e.Hosts}
	around := &n.Rules.Surroundings
	around.Node = addAddresses(around.Node, e.variable(wire.EnvHostIPs))
	around.APIServerService = addAddresses(around.APIServerService, e.variable(kubernetesHost))
	around.Pod = podAddresses()
	return n
}

// podAddresses are those of the pod's own interfaces, as many as rules may hold. Without them a call can't reach its own servers
// by the pod's address.
func podAddresses() (list []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if addr := prefix.Addr().Unmap(); err == nil && !addr.IsLoopback() && !addr.IsLinkLocalUnicast() && len(list) < network.MaxSurroundings {
			list = append(list, addr)
		}
	}
	return list
}

// variable is the runner's own of that name.
func (e *Executor) variable(name string) string {
	for _, kv := range e.Environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// addAddresses adds the addresses of a text with commas that aren't in the list.
func addAddresses(list []netip.Addr, text string) []netip.Addr {
	list = slices.Clone(list)
	for part := range strings.SplitSeq(text, ",") {
		addr, err := netip.ParseAddr(strings.TrimSpace(part))
		if err == nil && !slices.Contains(list, addr.Unmap()) {
			list = append(list, addr.Unmap())
		}
	}
	return list
}
