// Package clusternet finds the addresses of the cluster that calls are kept from, and its nameservers.
//
// Input are the API server (the EndpointSlice of the Service kubernetes, ServiceCIDRs, nodes) and the resolv.conf of the
// operator's own pod, which has the cluster's DNS. What was found is kept, and looked for again every minute: a command that runs
// is kept from what was known when it began.
//
// Invariants: what can't be found is an error, and the call waits. Where no node says which addresses its pods have, or the API
// server which its services have, that is said: every private network counts as the cluster's then. What nodes say isn't
// always so, as network plugins can choose other addresses; whoever uses the facts in a pod compares them with its own address.
package clusternet

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Facts are what was found.
type Facts struct {
	// APIServer are the addresses of the API server.
	APIServer []netip.Addr
	// Services are the networks of services, Pods those of pods and the addresses of nodes. Empty where nobody says which.
	Services, Pods []netip.Prefix
	// Domain is the cluster's DNS domain, such as cluster.local; empty if it isn't known.
	Domain string
	// Search are the DNS domains that pods look names up in besides the cluster's.
	Search      []string
	Nameservers []netip.AddrPort
}

const (
	refreshEvery = time.Minute
	findTimeout  = 30 * time.Second
	// maxNetworks bounds each list, which every call's rules have.
	maxNetworks = 256
	// maxSearch bounds the search list besides the cluster's three domains: a pod may have 32.
	maxSearch = 16
	nodesPage = 250
	dnsPort   = 53
)

// Source finds facts. Its methods may be called by any number of goroutines.
type Source struct {
	clients kubernetes.Interface
	dns     resolvConf
	log     logr.Logger

	mu    sync.Mutex
	facts *Facts
}

// New makes a Source. The resolv.conf is that of the operator's pod.
func New(clients kubernetes.Interface, resolvConfPath string, log logr.Logger) (*Source, error) {
	raw, err := os.ReadFile(resolvConfPath)
	if err != nil {
		return nil, fmt.Errorf("find the cluster's nameservers: %w", err)
	}
	return &Source{clients: clients, dns: parseResolvConf(string(raw)), log: log}, nil
}

// Domain is the cluster's DNS domain; empty if it isn't known.
func (s *Source) Domain() string { return s.dns.domain }

// Search are the DNS domains that pods look names up in besides the cluster's.
func (s *Source) Search() []string { return s.dns.search }

// Facts returns what was found last. Only while nothing was, it looks for it.
func (s *Source) Facts(ctx context.Context) (*Facts, error) {
	if known := s.known(); known != nil {
		return known, nil
	}
	return s.look(ctx)
}

func (s *Source) known() *Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts
}

// look finds the facts and keeps them.
func (s *Source) look(ctx context.Context) (*Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found, err := s.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the addresses of the cluster, from which calls are kept: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = found
	return found, nil
}

// Start looks for the facts again and again until the context ends. Old ones are better than none.
func (s *Source) Start(ctx context.Context) error {
	if s.dns.domain == "" {
		s.log.Info("The operator's resolv.conf names no cluster domain: calls reach no service by its name")
	}
	if len(s.dns.nameservers) == 0 {
		s.log.Info("The operator's resolv.conf has no nameserver that pods could ask: calls with a restricted network look up no names")
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if _, err := s.look(ctx); err != nil {
			s.log.Error(err, "What is known of the cluster's addresses may be old")
		}
	}, refreshEvery)
	return nil
}

func (s *Source) find(ctx context.Context) (*Facts, error) {
	f := &Facts{Domain: s.dns.domain, Search: s.dns.search, Nameservers: s.dns.nameservers}
	slice, err := s.clients.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find the API server's addresses: %w", err)
	}
	if f.APIServer = addressesOf(slice); len(f.APIServer) == 0 {
		return nil, errors.New("find the API server's addresses: the EndpointSlice kubernetes has none")
	}
	if f.Services, err = s.serviceNetworks(ctx); err != nil {
		return nil, err
	}
	if f.Pods, err = s.podNetworks(ctx); err != nil {
		return nil, err
	}
	f.Services, f.Pods = unlessMany(merged(f.Services)), unlessMany(merged(f.Pods))
	return f, nil
}

// unlessMany gives up networks that are too many to list.
func unlessMany(list []netip.Prefix) []netip.Prefix {
	if len(list) > maxNetworks {
		return nil
	}
	return list
}

func addressesOf(slice *discoveryv1.EndpointSlice) (list []netip.Addr) {
	for _, endpoint := range slice.Endpoints {
		for _, text := range endpoint.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				list = append(list, addr.Unmap())
			}
		}
	}
	return list
}

// serviceNetworks are none where the cluster doesn't serve ServiceCIDRs.
func (s *Source) serviceNetworks(ctx context.Context) (list []netip.Prefix, err error) {
	cidrs, err := s.clients.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the networks of services: %w", err)
	}
	for i := range cidrs.Items {
		list = appendNetworks(list, cidrs.Items[i].Spec.CIDRs)
	}
	return list, nil
}

// podNetworks are those of the nodes' pods, with the addresses of the nodes. They are none where no node says which networks its pods
// have. A node that is new doesn't for a moment.
func (s *Source) podNetworks(ctx context.Context) (list []netip.Prefix, err error) {
	var nodes []netip.Prefix
	// Any version will do: the API server's cache answers.
	options := metav1.ListOptions{Limit: nodesPage, ResourceVersion: "0"}
	for {
		page, err := s.clients.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("find the networks of pods: %w", err)
		}
		for i := range page.Items {
			list = appendNetworks(list, page.Items[i].Spec.PodCIDRs)
			for _, a := range page.Items[i].Status.Addresses {
				if addr, err := netip.ParseAddr(a.Address); err == nil {
					nodes = append(nodes, netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()))
				}
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
		options.ResourceVersion = ""
	}
	if len(list) == 0 {
		return nil, nil
	}
	return append(list, nodes...), nil
}

// merged returns the same networks, sorted: halves of one as that one, and none within another.
func merged(list []netip.Prefix) []netip.Prefix {
	list = slices.SortedFunc(slices.Values(list), comparePrefixes)
	var out []netip.Prefix
	for _, p := range list {
		if len(out) > 0 && out[len(out)-1].Overlaps(p) {
			continue
		}
		out = append(out, p)
		for len(out) > 1 {
			last, before := out[len(out)-1], out[len(out)-2]
			whole, err := before.Addr().Prefix(before.Bits() - 1)
			if err != nil || before.Bits() != last.Bits() || !whole.Contains(last.Addr()) {
				break
			}
			out = append(out[:len(out)-2], whole)
		}
	}
	return out
}

// comparePrefixes puts a network before those within it.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func appendNetworks(list []netip.Prefix, texts []string) []netip.Prefix {
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			list = append(list, prefix.Masked())
		}
	}
	return list
}

// resolvConf is what is needed of one.
type resolvConf struct {
	nameservers []netip.AddrPort
	domain      string
	// search is what comes after the cluster's domains.
	search []string
}

func parseResolvConf(text string) (c resolvConf) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			// What is loopback for the operator's pod is another one's for the call's.
			if addr, err := netip.ParseAddr(fields[1]); err == nil && !addr.Unmap().IsLoopback() && !addr.Unmap().IsUnspecified() {
				c.nameservers = append(c.nameservers, netip.AddrPortFrom(addr, dnsPort))
			}
		case "search":
			c.domain, c.search = clusterDomain(fields[1:])
		}
	}
	return c
}

// clusterDomain finds the cluster's domain in a pod's search list: NAMESPACE.svc.DOMAIN, svc.DOMAIN, DOMAIN, and what the node has. A
// node's own list has no such three.
func clusterDomain(list []string) (domain string, rest []string) {
	for i := 0; i+2 < len(list); i++ {
		domain := strings.TrimSuffix(list[i+2], ".")
		if strings.TrimSuffix(list[i+1], ".") == "svc."+domain && strings.HasSuffix(strings.TrimSuffix(list[i], "."), ".svc."+domain) {
			rest = list[i+3:]
			return domain, rest[:min(len(rest), maxSearch)]
		}
	}
	return "", nil
}
