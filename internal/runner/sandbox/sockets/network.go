// Package sockets holds what a command connects to. The kernel asks the gate about each socket, connect, bind, listen and sendto
// with an address of the command. The gate makes the sockets itself, keeps a descriptor of each, and connects on that: the address
// is read once, and the decision is about what is used. Network says what decides.
package sockets

import (
	"net/netip"

	"toolcall.dev/operator/internal/network"
)

// Connections decides about connections.
type Connections interface {
	// Decide is asked before each connection. The address is never an IPv4 address mapped to IPv6, has no zone, and isn't
	// the unspecified one. A refusal says which host was refused, and why. Several threads call it at once, and it must not wait for
	// anything.
	Decide(to netip.AddrPort, p network.Protocol) network.Verdict
}

// Datagrams answers the datagrams that commands send to a nameserver.
type Datagrams interface {
	// Datagram gets a query of at most MaxQuery bytes. It returns at once, and reply must be called exactly once, from any
	// goroutine, with nil for no answer. The answer must fit into a datagram of the command's protocol.
	Datagram(query []byte, reply func(answer []byte))
}

// MaxQuery bounds a datagram to a nameserver. Longer ones fail with EMSGSIZE.
const MaxQuery = 4096

// Network is what decides about a call's connections.
type Network struct {
	Connections Connections
	// Nameservers are addresses of this pod at which commands expect a nameserver by UDP. Nobody else may answer there
	// by UDP. Without Datagrams there are none.
	Nameservers []netip.AddrPort
	// Resolver says where a TCP connection to one of them goes instead; an invalid address refuses it. Several threads call it at once.
	Resolver  func() netip.AddrPort
	Datagrams Datagrams
	// UDP opens UDP. Connections are still asked about the addresses that can be seen, but nothing holds the others.
	UDP bool
}
