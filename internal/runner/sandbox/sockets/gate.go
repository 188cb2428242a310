package sockets

import (
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// Gate answers the network calls of one call's processes.
//
// Each IPv4 and IPv6 socket is made here. The command gets a descriptor of it and the gate keeps another one, on
// which it connects. A kept socket isn't released by the command's close, so the gate gives it up as soon as it is
// connected or listens, and sweeps what no process holds any more.
type Gate struct {
	*Network
	// allSockets says that the kernel connects none of the command's sockets: Unix sockets are made here too.
	allSockets bool
	denied     denials

	// heldSockets have the lock also of what follows.
	*heldSockets
	// queries is how many datagrams wait for their answers.
	queries int
	// connecting has an element for each Unix socket that is being connected, patient is how many are to be.
	connecting chan struct{}
	patient    atomic.Int32
}

// New makes a gate, which answers through a listener. allSockets says that the kernel connects none of the command's sockets.
func New(n *Network, l kernel.Listener, allSockets bool) (*Gate, error) {
	held, err := newHeldSockets(l)
	if err != nil {
		return nil, err
	}
	return &Gate{
		Network: n, allSockets: allSockets, heldSockets: held, connecting: make(chan struct{}, maxConnecting),
	}, nil
}

// Handle answers one system call, and reports false for one that isn't about the network.
func (g *Gate) Handle(c *kernel.Notification) bool {
	var handle func(c *kernel.Notification, inode uint64) unix.Errno
	switch c.Number {
	case unix.SYS_SOCKET:
		g.handleSocket(c)
		return true
	case unix.SYS_CONNECT:
		handle = g.handleConnect
	case unix.SYS_BIND:
		handle = g.handleBind
	case unix.SYS_LISTEN:
		handle = g.handleListen
	case unix.SYS_SENDTO:
		handle = g.handleSendto
	default:
		return false
	}
	inode, errno := c.Thread().Socket(c.Int(0))
	if errno == 0 {
		// The command can have its descriptor before Give returns. Until then the kernel keeps the socket, and its port when it is closed.
		if s := g.find(inode); s != nil {
			<-s.given
		}
		errno = handle(c, inode)
	}
	if errno != 0 {
		g.answer(c.ID, errno)
	}
	return true
}

// answer ends a system call with a result or an error. It reports false when the call doesn't wait any more.
func (g *Gate) answer(id uint64, errno unix.Errno) bool {
	return g.listener.Finish(id, 0, errno)
}

// judge asks about an address and counts a refusal. It returns the error for the command; 0 lets it go on.
func (g *Gate) judge(to netip.AddrPort, p network.Protocol) unix.Errno {
	v := g.Connections.Decide(to, p)
	if v.Allowed {
		return 0
	}
	g.denied.add(to.Port(), p, v)
	if p == network.RouteLookup {
		return unix.ENETUNREACH
	}
	return unix.EACCES
}

// Report adds to an outcome what was refused, and whether UDP was held.
func (g *Gate) Report(o *result.Outcome) {
	g.denied.report(o)
	o.Isolation.OpenUDP = g.UDP
}

// Refusal is a sentence about the last address that was refused, and one about others; empty if there was none.
func (g *Gate) Refusal() string { return g.denied.message() }
