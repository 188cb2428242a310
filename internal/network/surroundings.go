package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// metadata are the link-local addresses and those at which clouds tell an instance about itself, often with credentials. Every
// policy denies them.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fe80::/10"),
	// Amazon has its services for instances here: metadata at ::254, DNS at ::253, time at ::123 ("IPv6 on AWS", Supporting
	// Amazon VPC services).
	netip.MustParsePrefix("fd00:ec2::/32"),
	// Google Compute Engine, on machines with IPv6 alone. Known from the deny lists of other projects: the manual names the
	// server metadata.google.internal.
	netip.MustParsePrefix("fd20:ce::254/128"),
	// Alibaba Cloud (Elastic Container Instance, Obtain metadata from a container; the AliYun data source of cloud-init).
	netip.MustParsePrefix("100.100.100.200/32"),
	// Azure's WireServer, which serves each machine its configuration (What is IP address 168.63.129.16?).
	netip.MustParsePrefix("168.63.129.16/32"),
	// Oracle Cloud at Customer and Compute Classic (Retrieve Predefined Instance Metadata).
	netip.MustParsePrefix("192.0.0.192/32"),
}

// private are the networks that services and pods have addresses of where nobody says which: RFC 1918, RFC 6598, RFC 4193.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}

// Of networks with public addresses that nobody knows, what lies around the pod's own address counts as the cluster's: as much as
// clusters commonly have of them.
const (
	aroundIPv4 = 16
	aroundIPv6 = 56
)

// guess returns what counts as the cluster's where nobody says which networks it has.
func guess(pod []netip.Addr) []netip.Prefix {
	list := slices.Clone(private)
	for _, own := range pod {
		bits := aroundIPv6
		if own.Is4() {
			bits = aroundIPv4
		}
		if around := netip.PrefixFrom(own, bits).Masked(); !containing(list, around).IsValid() {
			list = append(list, around)
		}
	}
	return list
}

// check says which addresses are missing that must be denied.
func (s *Surroundings) check(p *problems) {
	const missing = " aren't known, so nothing would deny them: give them"
	if len(s.Node) == 0 {
		p.add("surroundings.node", "the node's addresses"+missing)
	}
	if len(s.APIServerService) == 0 {
		p.add("surroundings.apiServerService", "the addresses of the API server's Service"+missing)
	}
	if len(s.APIServer) == 0 {
		p.add("surroundings.apiServer", "the addresses of the API server's endpoints"+missing)
	}
}

func (d *Decider) compileSurroundings(s *Surroundings, p *problems) {
	for _, prefix := range metadata {
		d.denied = append(d.denied, denial{prefix, ReasonMetadata})
	}
	d.denied = append(d.denied, denial{netip.PrefixFrom(Resolvers, Resolvers.BitLen()), ReasonResolver})
	d.denyAddresses(s.APIServerService, "surroundings.apiServerService", ReasonAPIServer, p)
	d.denyAddresses(s.APIServer, "surroundings.apiServer", ReasonAPIServer, p)
	d.denyAddresses(s.Node, "surroundings.node", ReasonNode, p)
	d.pod = compileAddresses(s.Pod, "surroundings.pod", p)
	d.addNetworks(s.Services, "surroundings.services", p)
	d.addNetworks(s.Pods, "surroundings.pods", p)
	if s.Domain == "" {
		return
	}
	name, err := Name(s.Domain)
	if err != nil {
		p.add("surroundings.domain", "%v", err)
		return
	}
	d.domain = name
	d.allowed.pods, d.narrowed.pods = "pod."+name, "pod."+name // the names of pods, in a cluster's DNS
}

func (d *Decider) addNetworks(list []netip.Prefix, field string, p *problems) {
	for i, prefix := range list {
		if !prefix.IsValid() || prefix.Masked() != prefix || prefix.Addr().Is4In6() {
			p.add(fmt.Sprintf("%s[%d]", field, i), "%v isn't a network: write one such as 10.96.0.0/12", prefix)
			continue
		}
		d.cluster = append(d.cluster, prefix)
	}
}

func (d *Decider) denyAddresses(list []netip.Addr, field string, reason Reason, p *problems) {
	for _, addr := range compileAddresses(list, field, p) {
		d.denied = append(d.denied, denial{netip.PrefixFrom(addr, addr.BitLen()), reason})
	}
}

func compileAddresses(list []netip.Addr, field string, p *problems) (addrs []netip.Addr) {
	for i, addr := range list {
		addr = addr.Unmap().WithZone("")
		if !addr.IsValid() || addr.IsLoopback() || addr.IsUnspecified() {
			p.add(fmt.Sprintf("%s[%d]", field, i), "%v isn't an address that a pod reaches it by", list[i])
			continue
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

// isOwn says whether an address leads to the pod itself.
func (d *Decider) isOwn(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(d.pod, addr)
}
