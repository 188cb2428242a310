package v1alpha1

// NetworkMode says how much of the network a call has.
// +kubebuilder:validation:Enum=None;Listed;Open;Unrestricted
type NetworkMode string

// Values of NetworkRules.mode.
const (
	// NetworkNone is no network: only Unix sockets work.
	NetworkNone NetworkMode = "None"
	// NetworkListed is what the policy lists.
	NetworkListed NetworkMode = "Listed"
	// NetworkOpen is every host outside the cluster that isn't denied; with allowInCluster, those in it too.
	NetworkOpen NetworkMode = "Open"
	// NetworkUnrestricted is the pod's network, with UDP, metadata addresses, the node and the API server: nothing is decided
	// about connections.
	NetworkUnrestricted NetworkMode = "Unrestricted"
)

// NetworkRules say what a policy's calls may connect to and look up.
type NetworkRules struct {
	// mode is None (no network), Listed (what allowed lists), Open (every host outside the cluster that isn't denied;
	// with allowInCluster, those in it too) or Unrestricted (the pod's network, not restricted by the runner, for nodes that can't
	// enforce a restriction). Unset: Open; for code calls None,
	// unless code.networkAccess is true here and in the call. A mode that is set applies to code calls too.
	// +optional
	Mode NetworkMode `json:"mode,omitempty"`

	// allowed are the hosts that calls may reach, by TCP. In mode Open it only opens hosts in the cluster's networks.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Allowed []AllowedHost `json:"allowed,omitempty"`

	// deniedCIDRs are networks that calls don't reach by TCP, whatever is allowed. Link-local and metadata addresses, those of
	// the node and those of the API server are denied too. Not valid in mode Unrestricted.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	// +optional
	DeniedCIDRs []string `json:"deniedCIDRs,omitempty"`

	// allowInCluster treats the networks of the cluster's services and pods like all others. Without it calls reach in them
	// only what allowed names: an address, a CIDR, a name that is written out, or a wildcard in the cluster's domain. Default false.
	// +kubebuilder:default=false
	// +optional
	AllowInCluster *bool `json:"allowInCluster,omitempty"`

	// udp opens UDP, which nothing holds to allowed and deniedCIDRs. Default false.
	// +kubebuilder:default=false
	// +optional
	UDP *bool `json:"udp,omitempty"`
}

// AllowedHost is a host that calls may reach.
type AllowedHost struct {
	// host is a DNS name, "*." before one for every name below it, an IP address, or a CIDR.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +required
	Host string `json:"host"`

	// ports of TCP. Default 443.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	// +listType=atomic
	// +kubebuilder:default={443}
	// +optional
	Ports []int32 `json:"ports,omitempty"`
}

// CallNetwork narrows what the policy lets a call reach.
type CallNetwork struct {
	// hosts are all that the call reaches: each is covered by what the policy allows, as a name, a name below a wildcard, an
	// IP address or a CIDR. The ports are the policy's. Unset: what the policy allows.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +listType=atomic
	// +optional
	Hosts []string `json:"hosts,omitempty"`
}

// NetworkStatus is the network that a call had.
type NetworkStatus struct {
	// mode is the one in effect.
	// +optional
	Mode NetworkMode `json:"mode,omitempty"`

	// allowed are the hosts that the call could reach: those of its network.hosts, or else of the policy's network.allowed,
	// the first 20. In mode Open, without hosts, there are none: it could reach all that isn't denied.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=255
	// +listType=atomic
	// +optional
	Allowed []string `json:"allowed,omitempty"`

	// denied are the names that the call looked up, and the addresses that it tried to reach, and wasn't allowed to, in the
	// order of the first attempts.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Denied []DeniedHost `json:"denied,omitempty"`

	// omittedDenied counts what isn't in denied: attempts to connect, and names that were looked up.
	// +optional
	OmittedDenied int64 `json:"omittedDenied,omitempty"`
}

// DeniedHost is a name or an address that a call wasn't allowed to look up or to reach.
type DeniedHost struct {
	// host is the name, if the address was looked up by one.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Host string `json:"host"`

	// port is the one that the call tried to connect to; absent for a lookup.
	// +optional
	Port int32 `json:"port,omitempty"`

	// count is how often.
	// +required
	Count int64 `json:"count"`
}
