package runner

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/resolver"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
	"toolcall.dev/operator/internal/spec"
)

// Network is what a command may connect to, and what its names are looked up with.
type Network struct {
	spec.Network
	// Hosts are the entries of /etc/hosts from before the pod's first command.
	Hosts []resolver.HostsEntry `json:"hosts,omitempty"`
}

// nameservers are where the pod's resolv.conf has commands look for one: the gate leads there to the call's resolver.
var nameservers = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}

// ReadHosts reads /etc/hosts.
func ReadHosts() []resolver.HostsEntry {
	file, err := os.Open("/etc/hosts")
	if err != nil {
		return nil
	}
	defer file.Close()
	return resolver.ParseHosts(file)
}

// connections decide about the connections of one command. A nil one stands for a command whose connections aren't
// decided about.
type connections struct {
	resolver *resolver.Resolver
	// queries is where the resolver takes connections, from the first one on: most commands look names up by UDP alone, or none. It is
	// invalid where there is no room to listen.
	queries func() netip.AddrPort
	udp     bool
}

// newConnections compiles rules and makes the resolver. They must be closed.
func newConnections(n *Network) (*connections, error) {
	decider, err := network.Compile(&n.Rules)
	if err != nil {
		return nil, failed(result.IsolationUnavailable, fmt.Sprintf(
			"The command was not started, because its network can't be restricted: %s.", err))
	}
	r := resolver.New(resolver.Config{Rules: decider, Nameservers: n.Nameservers, Search: n.Search, Hosts: n.Hosts})
	return &connections{resolver: r, queries: sync.OnceValue(func() netip.AddrPort { return listenFor(r) }), udp: n.Rules.UDP}, nil
}

// listenFor has a resolver take connections, until it is closed.
func listenFor(r *resolver.Resolver) netip.AddrPort {
	var listen net.ListenConfig
	listener, err := listen.Listen(context.Background(), "tcp4", netip.AddrPortFrom(network.Resolvers, 0).String())
	if err != nil {
		return netip.AddrPort{}
	}
	go r.Serve(listener)
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

func (c *connections) close() {
	if c != nil {
		c.resolver.Close()
	}
}

// network is what the gate needs.
func (c *connections) network() *sockets.Network {
	if c == nil {
		return nil
	}
	return &sockets.Network{Connections: c.resolver, Nameservers: nameservers, Resolver: c.queries, Datagrams: c.resolver, UDP: c.udp}
}

// report adds the names that were refused to an outcome which has the refused addresses.
func (c *connections) report(o *result.Outcome) {
	if c == nil {
		return
	}
	names, more := c.resolver.Denials()
	for _, d := range names {
		if len(o.Denied) == result.MaxDenials {
			more++
			continue
		}
		o.Denied = append(o.Denied, result.NetworkDenial{Host: d.Host, Count: d.Count})
	}
	o.MoreDenied += more
	ends := []string{result.NonZeroExit, result.Signaled, result.TimedOut}
	if len(names) > 0 {
		var others []string
		for _, d := range names[1:] {
			others = append(others, d.Host)
		}
		o.AddRefusal(fmt.Sprintf("Looking up %q was not allowed: %s.", names[0].Host, names[0].Rule)+
			result.OthersRefused("name", "status.network.denied", others, more > 0), ends)
	}
	if !slices.Contains(ends, o.Reason) {
		return
	}
	if last, others := c.resolver.Failures(); last != nil {
		o.Message += " " + failedLookups(last, others)
	}
}

// failedLookups says which names the nameservers didn't answer, and what to look at.
func failedLookups(last *resolver.Failure, others int) string {
	names := fmt.Sprintf("%q", last.Name)
	switch {
	case others == 1:
		names += " and 1 other name"
	case others > 1:
		names += fmt.Sprintf(" and %d other names", others)
	}
	if !last.Nameserver.IsValid() {
		return fmt.Sprintf("Looking up %s failed: %v. Check the resolv.conf of the operator, which calls get theirs from.", names, last.Err)
	}
	return fmt.Sprintf("Looking up %s failed: the nameserver %v was asked last: %v. "+
		"Check that the cluster's DNS works, and that no NetworkPolicy keeps the call's pod from it.", names, last.Nameserver, last.Err)
}
