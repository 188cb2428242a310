package sandbox

import (
	"net/netip"
	"slices"
	"time"

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

// network answers the network calls of one call's processes.
//
// Each IPv4 and IPv6 socket is made here. The command gets a descriptor of it and the network keeps another one, on
// which it connects: the address is read once, and the decision is about what is used. A kept socket isn't released by
// the command's close, so the network gives it up as soon as it is connected or listens, and sweeps what no process
// holds any more.
type network struct {
	*Network
	listener listener
	// allSockets says that the kernel connects none of the command's sockets: Unix sockets are made here too.
	allSockets bool
	denied     denials

	// heldSockets have the lock also of what follows.
	*heldSockets
	// queries is how many datagrams wait for their answers.
	queries int
	// connecting is how many Unix sockets are being connected.
	connecting int
}

// sweepDue stands for a sweep where notifications have their calls.
const sweepDue = -1

func newNetwork(n *Network, l listener, allSockets bool) (*network, error) {
	held, err := newHeldSockets()
	if err != nil {
		return nil, err
	}
	return &network{Network: n, listener: l, allSockets: allSockets, heldSockets: held}, nil
}

// expire ends the waiting of threads whose time has come, and reports whether a sweep is due. Their sockets go on
// connecting.
func (n *network) expire(now time.Time) (sweeps bool) {
	for _, s := range n.sockets {
		if s.isLocal {
			if len(s.waiters) > 0 {
				n.advanceLocal(s)
			}
			continue
		}
		s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
			isOver := !w.deadline.IsZero() && !w.deadline.After(now)
			if isOver {
				n.answer(w.id, unix.EINPROGRESS)
			}
			return isOver
		})
	}
	if sweeps = !n.nextSweep.IsZero() && !n.nextSweep.After(now); sweeps {
		n.nextSweep = time.Time{}
	}
	n.setTimer()
	return sweeps
}

// handle answers one system call, and reports false for one that isn't about the network.
func (n *network) handle(c *notification) bool {
	switch c.number {
	case unix.SYS_SOCKET:
		n.handleSocket(c)
	case unix.SYS_CONNECT:
		n.handleConnect(c)
	case unix.SYS_BIND:
		n.handleBind(c)
	case unix.SYS_LISTEN:
		n.handleListen(c)
	case unix.SYS_SENDTO:
		n.handleSendto(c)
	case sweepDue:
		n.sweeping.Lock()
		defer n.sweeping.Unlock()
		n.sweep()
	default:
		return false
	}
	return true
}

// answer ends a system call with a result or an error. It reports false when the call doesn't wait any more.
func (n *network) answer(id uint64, errno unix.Errno) bool {
	return n.listener.finish(id, 0, errno)
}

// maxErrno is the largest error that a system call can return.
const maxErrno = 4095

// judge asks about an address and counts a refusal. It returns the error for the command; 0 lets it go on.
func (n *network) judge(to netip.AddrPort, p Protocol) (Verdict, unix.Errno) {
	v := n.Connections.Decide(to, p)
	if v.Allow {
		return v, 0
	}
	n.denied.add(to, p, v)
	if v.Errno == 0 || v.Errno > maxErrno {
		v.Errno = unix.EACCES
	}
	return v, v.Errno
}
