// Package sockets holds what a command connects to. The kernel asks the gate about each socket, connect, bind, listen and sendto
// with an address of the command. The gate makes the sockets itself, keeps a descriptor of each, and connects on that: the address
// is read once, and the decision is about what is used. Network says what decides.
package sockets

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Protocol is what a connection or a datagram uses.
type Protocol int

// Protocols.
const (
	// TCP is a connection.
	TCP Protocol = iota + 1
	// UDP is a datagram, or a socket that is about to send some. The gate asks about it only if Network.UDP is set.
	UDP
	// RouteLookup is connecting a UDP socket that can't send. The command learns its own address by it and nothing
	// leaves: getaddrinfo sorts addresses by that. The port may be 0.
	RouteLookup
)

// String returns the protocol's name in messages.
func (p Protocol) String() string {
	if p == TCP {
		return "TCP"
	}
	return "UDP"
}

// Verdict is the answer to one connection.
type Verdict struct {
	// Allow lets the connection through. The zero Verdict refuses.
	Allow bool
	// Redirect is where an allowed connection goes instead, if it is valid.
	Redirect netip.AddrPort
	// Errno is what the command gets for a refused one; 0 is EACCES.
	Errno unix.Errno
	// Rule says in a sentence why it is refused and what would pass.
	Rule string
	// Host is the name of the address in reports, if one is known; empty for the address.
	Host string
}

// Connections decides about connections.
type Connections interface {
	// Decide is asked before each connection. The address is never an IPv4 address mapped to IPv6, has no zone, and isn't
	// the unspecified one. Several threads call it at once, and it must not wait for anything.
	Decide(to netip.AddrPort, p Protocol) Verdict
}

// Datagrams answers the datagrams that commands send to a nameserver.
type Datagrams interface {
	// Answer gets a query of at most MaxQuery bytes. It returns at once, and reply must be called exactly once, from any
	// goroutine, with nil for no answer. The answer must fit into a datagram of the command's protocol.
	Answer(query []byte, reply func(answer []byte))
}

// MaxQuery bounds a datagram to a nameserver. Longer ones fail with EMSGSIZE.
const MaxQuery = 4096

// Network is what decides about a call's connections.
type Network struct {
	Connections Connections
	// Nameservers are addresses of this pod at which commands expect a nameserver by UDP. Nobody else may answer there
	// by UDP. Without Datagrams there are none.
	Nameservers []netip.AddrPort
	Datagrams   Datagrams
	// UDP opens UDP. Connections are still asked about the addresses that can be seen, but nothing holds the others.
	UDP bool
}
