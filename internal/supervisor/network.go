package supervisor

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// kubernetesHost is the variable through which the kubelet tells each container the API server's address.
const kubernetesHost = "KUBERNETES_SERVICE_HOST"

// checkPod says why a command can't have its network in this pod: a pod is made for one kind, and a session keeps it when its policy
// changes.
func (e *Executor) checkPod(a *wire.Assignment) (reason, message string) {
	isRestricted := runner.Variable(e.Environ, wire.EnvHostIPs) != ""
	switch {
	case a.Network != nil && !isRestricted:
		return result.IsolationUnavailable, "The command was not started, because its pod was made under a policy with network.mode Unrestricted, " +
			"and doesn't know the addresses of its node, from which the call is to be kept: end the session, and start another."
	case a.Network == nil && !a.DenyNetwork && isRestricted:
		return result.InvalidEnvironment, "The command was not started, because its pod was made for calls whose network is restricted: " +
			"names are looked up in the runner, which does that for such calls alone. End the session, and start another for network.mode Unrestricted."
	default:
		return "", ""
	}
}

// networkOf adds to what the operator knows of a call's network what only the pod knows; nil for a call without rules. Without
// the node's addresses the rules can't be compiled, and the command isn't started.
func (e *Executor) networkOf(a *wire.Assignment) *runner.Network {
	if a.Network == nil {
		return nil
	}
	n := &runner.Network{Network: *a.Network, Hosts: e.Hosts}
	around := &n.Rules.Surroundings
	around.Node = addAddresses(around.Node, runner.Variable(e.Environ, wire.EnvHostIPs))
	if len(around.Node) > 0 { // Without them a call must not start, and gateways are no replacement.
		around.Node = append(around.Node, e.Pod.Gateways...)
	}
	around.APIServerService = addAddresses(around.APIServerService, runner.Variable(e.Environ, kubernetesHost))
	around.Pod = e.Pod.Addresses
	if !slices.ContainsFunc(around.Pod, func(own netip.Addr) bool {
		return slices.ContainsFunc(around.Pods, func(known netip.Prefix) bool { return known.Contains(own) })
	}) {
		// The network plugin gives pods addresses of its own choice.
		around.Pods = nil
	}
	return n
}

// PodNetwork is what the pod's interfaces and routes say.
type PodNetwork struct {
	// Addresses are the pod's own, Gateways those by which its traffic leaves it.
	Addresses, Gateways []netip.Addr
}

// ReadPodNetwork asks the kernel. A pod keeps its network, and a command with the right to change it must not choose what it is denied.
func ReadPodNetwork() PodNetwork { return PodNetwork{Addresses: podAddresses(), Gateways: gateways()} }

// podAddresses are those of the pod's own interfaces. Without them a call can't reach its own servers
// by the pod's address.
func podAddresses() (list []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if addr := prefix.Addr().Unmap(); err == nil && !addr.IsLoopback() && !addr.IsLinkLocalUnicast() {
			list = append(list, addr)
		}
	}
	return list
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
