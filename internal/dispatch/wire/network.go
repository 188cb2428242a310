package wire

import (
	"net/netip"

	"toolcall.dev/operator/internal/network"
)

// Network is what a call's command may connect to. The runner adds what only its pod knows: the addresses of the node.
type Network struct {
	Rules network.Rules `json:"rules"`
	// Nameservers are the cluster's. Search is the search list of the pod.
	Nameservers []netip.AddrPort `json:"nameservers,omitempty"`
	Search      []string         `json:"search,omitempty"`
}
