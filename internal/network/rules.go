package network

import (
	"errors"
	"fmt"
	"net/netip"
)

// Mode says how much network a call has.
type Mode string

// The modes of a policy's network.
const (
	// None allows no connections but to loopback.
	None Mode = "None"
	// Listed allows connections to what is listed.
	Listed Mode = "Listed"
	// Open allows connections to everything that isn't denied.
	Open Mode = "Open"
)

// DefaultPort is the port of an entry that lists none.
const DefaultPort = 443

// MaxHosts bounds a call's Hosts. More make Rules invalid. The API bounds what policies list.
const MaxHosts = 256

// Rules are what the processes of one call may connect to.
type Rules struct {
	// Mode is required: which mode is the default depends on the call.
	Mode Mode `json:"mode"`
	// Allowed lists hosts. In mode Listed nothing else can be reached, in mode Open it only opens the cluster's networks.
	Allowed []Entry `json:"allowed,omitempty"`
	// DeniedCIDRs win over everything.
	DeniedCIDRs []string `json:"deniedCIDRs,omitempty"`
	// AllowInCluster treats the cluster's networks like all others.
	AllowInCluster bool `json:"allowInCluster,omitempty"`
	// UDP allows UDP to what may be reached by TCP. A kernel can't hold a process to that.
	UDP bool `json:"udp,omitempty"`
	// Implied says that neither the policy nor the call says anything of the network. Where connections can't be held, the call then
	// has none.
	Implied bool `json:"implied,omitempty"`
	// Hosts narrow the rest, in the notation of Entry.Host. None narrows nothing.
	Hosts []string `json:"hosts,omitempty"`
	// Surroundings are the addresses of the cluster.
	Surroundings Surroundings `json:"surroundings,omitzero"`
}

// Entry allows connections to a host.
type Entry struct {
	// Host is a DNS name, "*." and a DNS name for every name below it, an IP address, or a CIDR.
	Host string `json:"host"`
	// Ports of TCP, and of UDP where that is allowed; none means DefaultPort.
	Ports []int `json:"ports,omitempty"`
}

// Surroundings are the addresses of the cluster, the node and the pod that a call runs in. Compile requires those of the node and of the
// API server: what isn't known isn't denied.
type Surroundings struct {
	// Node holds the addresses of the node: always denied.
	Node []netip.Addr `json:"node,omitempty"`
	// APIServerService holds the addresses of the API server's Service, and APIServer those of its endpoints: always denied.
	APIServerService []netip.Addr `json:"apiServerService,omitempty"`
	APIServer        []netip.Addr `json:"apiServer,omitempty"`
	// Pod holds the pod's own addresses, which are treated as loopback. Those of the node stay denied.
	Pod []netip.Addr `json:"pod,omitempty"`
	// Services and Pods hold the networks of services and of pods. Where nobody knows one of them, that list is empty: every private
	// address, and those around Pod, then count as the cluster's.
	Services []netip.Prefix `json:"services,omitempty"`
	Pods     []netip.Prefix `json:"pods,omitempty"`
	// Domain is the cluster's DNS domain, such as cluster.local. Without one, no wildcard opens the cluster's networks.
	Domain string `json:"domain,omitempty"`
}

// Error says which field of Rules is wrong, and what would be right.
type Error struct {
	// Field is a path such as "allowed[2].host".
	Field   string
	Problem string
}

func (e *Error) Error() string { return e.Field + ": " + e.Problem }

// maxErrors bounds how many errors are told at once.
const maxErrors = 8

// problems collects errors in the order of the fields.
type problems struct {
	list []error
	more int
}

func (p *problems) add(field, format string, args ...any) {
	if len(p.list) == maxErrors {
		p.more++
		return
	}
	p.list = append(p.list, &Error{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (p *problems) err() error {
	if p.more > 0 {
		return errors.Join(append(p.list, fmt.Errorf("and %d more errors", p.more))...)
	}
	return errors.Join(p.list...)
}
