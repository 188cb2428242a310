// Package clusternet finds the addresses of the cluster that calls are kept from, and its nameservers.
//
// Input are the API server (the EndpointSlice of the Service kubernetes, ServiceCIDRs, nodes) and the resolv.conf of the
// operator's own pod, which has the cluster's DNS. What was found is kept, and looked for again every minute.
//
// Invariants: what can't be found is an error, so that rules which need it can't be compiled and the call doesn't run. Where the
// nodes don't say which addresses their pods have, or the API server which its services have, that is said: every private network
// counts as the cluster's then.
package clusternet

import (
	"bufio"
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

	"toolcall.dev/operator/internal/network"
)

// Facts are what was found.
type Facts struct {
	// APIServer are the addresses of the API server.
	APIServer []netip.Addr
	// Services and Pods are their networks; empty where nobody says which.
	Services, Pods []netip.Prefix
	// Domain is the cluster's DNS domain, such as cluster.local; empty if it isn't known.
	Domain      string
	Nameservers []netip.AddrPort
}

const (
	// refreshEvery is how long a new node's pods aren't known as the cluster's, at most.
	refreshEvery = time.Minute
	// maxNetworks bounds each list: more nodes have networks than a call's rules may hold.
	maxNetworks = network.MaxSurroundings
	nodesPage   = 250
	dnsPort     = 53
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

// Facts returns what was found last. Only while nothing was, it looks for it.
func (s *Source) Facts(ctx context.Context) (*Facts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.facts == nil {
		found, err := s.find(ctx)
		if err != nil {
			return nil, err
		}
		s.facts = found
	}
	return s.facts, nil
}

// Start looks for the facts again and again until the context ends. Old ones are better than none.
func (s *Source) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, s.refresh, refreshEvery)
	return nil
}

func (s *Source) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshEvery)
	defer cancel()
	found, err := s.find(ctx)
	if err != nil {
		s.log.Error(err, "The cluster's addresses that calls are kept from can't be looked up again")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = found
}

func (s *Source) find(ctx context.Context) (*Facts, error) {
	f := &Facts{Domain: s.dns.domain, Nameservers: s.dns.nameservers}
	if len(f.Nameservers) == 0 {
		return nil, errors.New("the operator's resolv.conf has no nameserver that calls could ask")
	}
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
	f.Services, f.Pods = unlessMany(f.Services), unlessMany(f.Pods)
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
	cidrs, err := s.clients.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{Limit: maxNetworks})
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

// podNetworks are none where a node doesn't say which addresses its pods have.
func (s *Source) podNetworks(ctx context.Context) (list []netip.Prefix, err error) {
	options := metav1.ListOptions{Limit: nodesPage}
	for {
		nodes, err := s.clients.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("find the networks of pods: %w", err)
		}
		for i := range nodes.Items {
			if len(nodes.Items[i].Spec.PodCIDRs) == 0 {
				return nil, nil
			}
			list = appendNetworks(list, nodes.Items[i].Spec.PodCIDRs)
		}
		if options.Continue = nodes.Continue; options.Continue == "" {
			return list, nil
		}
	}
}

func appendNetworks(list []netip.Prefix, texts []string) []netip.Prefix {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err == nil && !slices.Contains(list, prefix.Masked()) {
			list = append(list, prefix.Masked())
		}
	}
	return list
}

// resolvConf is what is needed of one.
type resolvConf struct {
	nameservers []netip.AddrPort
	domain      string
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
			if addr, err := netip.ParseAddr(fields[1]); err == nil && !addr.IsLoopback() && !addr.IsUnspecified() {
				c.nameservers = append(c.nameservers, netip.AddrPortFrom(addr, dnsPort))
			}
		case "search":
			for _, domain := range fields[1:] {
				if rest, ok := strings.CutPrefix(domain, "svc."); ok && c.domain == "" {
					c.domain = strings.TrimSuffix(rest, ".")
				}
			}
		}
	}
	return c
}
