package sockets

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// maxQueries is how many datagrams wait for an answer. More are lost, as on a network.
const maxQueries = 64

// handleSendto answers a datagram with an address. The kernel goes on for sockets that send no datagrams: fast open is
// refused in the filter, and without it TCP doesn't use the address.
func (g *Gate) handleSendto(c *kernel.Notification, inode uint64) unix.Errno {
	s := g.find(inode)
	switch {
	case s == nil:
		return g.proceedOther(c)
	case !s.isUDP:
		g.listener.Proceed(c.ID)
		return 0
	}
	raw, errno := readAddress(c.Thread(), c.Args[4], c.Int(5))
	var a address
	if errno == 0 {
		a, errno = parseAddress(raw)
	}
	switch {
	case !g.listener.IsValid(c.ID):
		return 0
	case errno != 0:
		return errno
	case g.isNameserver(a.to):
		return g.query(c, inode, a.to)
	default:
		return g.send(c, &a)
	}
}

func (g *Gate) isNameserver(to netip.AddrPort) bool {
	return g.Datagrams != nil && slices.Contains(g.Nameservers, to)
}

// answersAt reports whether a nameserver has a port.
func (g *Gate) answersAt(port uint16) bool {
	return g.Datagrams != nil && slices.ContainsFunc(g.Nameservers, func(ns netip.AddrPort) bool { return ns.Port() == port })
}

// send judges a datagram that isn't for a nameserver.
func (g *Gate) send(c *kernel.Notification, a *address) unix.Errno {
	if a.family != unix.AF_UNSPEC {
		if errno := g.judge(a.to, network.UDP); errno != 0 {
			return errno
		}
	}
	if !g.UDP {
		return unix.EACCES // whatever the rules say of it
	}
	g.listener.Proceed(c.ID)
	return 0
}

// query hands a datagram to the resolver. It is sent as far as the command can tell.
func (g *Gate) query(c *kernel.Notification, inode uint64, nameserver netip.AddrPort) unix.Errno {
	at, size := c.Args[1], c.Args[2]
	if size > MaxQuery {
		return unix.EMSGSIZE
	}
	data := make([]byte, size)
	if errno := c.Thread().Fill(data, at); errno != 0 {
		return errno
	}
	if !g.listener.IsValid(c.ID) {
		return 0
	}
	local, accepted := g.beginQuery(inode, nameserver)
	if accepted {
		g.Datagrams.Datagram(data, func(answer []byte) { g.endQuery(nameserver, local, answer) })
	}
	g.listener.Finish(c.ID, int64(size), 0)
	return 0
}

// beginQuery returns where the answer goes to. It binds the socket if it isn't, as sending would.
func (g *Gate) beginQuery(inode uint64, nameserver netip.AddrPort) (local netip.AddrPort, accepted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sockets[inode]
	if s == nil || g.queries == maxQueries {
		return local, false
	}
	if local = localAddress(s.fd); local.Port() == 0 {
		unspecified := netip.IPv4Unspecified()
		if domain, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_INET6 {
			unspecified = netip.IPv6Unspecified()
		}
		_ = unix.Bind(s.fd, encodeAddress(netip.AddrPortFrom(unspecified, 0)))
		local = localAddress(s.fd)
	}
	if local.Addr().IsUnspecified() || local.Addr().Is4() != nameserver.Addr().Is4() {
		local = netip.AddrPortFrom(nameserver.Addr(), local.Port())
	}
	g.queries++
	return local, true
}

// endQuery sends an answer from the nameserver's address: resolvers drop those from another one.
func (g *Gate) endQuery(nameserver, to netip.AddrPort, answer []byte) {
	g.mu.Lock()
	g.queries--
	closed := g.closed
	g.mu.Unlock()
	if closed || answer == nil {
		return
	}
	family := unix.AF_INET6
	if nameserver.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// Other answers may be on their way from the same address.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) == nil && unix.Bind(fd, encodeAddress(nameserver)) == nil {
		_ = unix.Sendto(fd, answer, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, encodeAddress(to))
	}
}
