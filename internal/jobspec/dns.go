package jobspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// runnerNameserver is where the runner answers lookups of calls whose network is restricted.
const runnerNameserver = "127.0.0.1"

// searchNdots is what the kubelet gives pods.
const searchNdots = "5"

// SearchList is that of pods in a namespace, as the kubelet gives it: the cluster's domains, then those of the nodes.
func SearchList(namespace, domain string, nodes []string) []string {
	if domain == "" {
		return nodes
	}
	return append([]string{namespace + ".svc." + domain, "svc." + domain, domain}, nodes...)
}

func dnsPolicy(p jobParts) corev1.DNSPolicy {
	if p.restrictsNetwork {
		return corev1.DNSNone
	}
	return ""
}

// dnsConfig has names looked up in the pod itself, by TCP where the C library can: UDP sockets of such calls can't send.
func dnsConfig(p jobParts) *corev1.PodDNSConfig {
	if !p.restrictsNetwork {
		return nil
	}
	return &corev1.PodDNSConfig{
		Nameservers: []string{runnerNameserver},
		Searches:    SearchList(p.namespace, p.runtime.Domain, p.runtime.Search),
		Options:     []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To(searchNdots)}, {Name: "use-vc"}},
	}
}
