package sandbox

import (
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// maxQueries is how many datagrams wait for an answer. More are lost, as on a network.
const maxQueries = 64

// datagram is a sendto with an address.
type datagram struct {
	id uint64
	// at and size are those of the data in the thread's memory.
	at, size uint64
	to       netip.AddrPort
}

// handleSendto answers a datagram with an address. The kernel goes on for sockets that send no datagrams: fast open is
// refused in the filter, and without it TCP doesn't use the address.
func (n *network) handleSendto(c *notification) {
	t, fd := target(c.pid), int32(c.args[0])
	inode, errno := t.socketInode(fd)
	if errno != 0 {
		n.answer(c.id, errno)
		return
	}
	s := n.find(inode)
	if s == nil {
		n.sendOther(c, t.socketProtocol(fd))
		return
	}
	raw, errno := t.address(c.args[4], int32(c.args[5]))
	var a address
	if errno == 0 && s.isUDP {
		a, errno = parseAddress(raw)
	}
	switch {
	case !n.listener.isValid(c.id):
	case !s.isUDP:
		n.listener.proceed(c.id)
	case errno != 0:
		n.answer(c.id, errno)
	case n.isNameserver(a.to):
		n.query(t, inode, &datagram{id: c.id, at: c.args[1], size: c.args[2], to: a.to})
	default:
		n.send(c, &a)
	}
}

func (n *network) sendOther(c *notification, protocol string) {
	if isLocalProtocol(protocol) || isTCP(protocol) {
		n.listener.proceed(c.id)
		return
	}
	n.answer(c.id, unix.EACCES)
}

func (n *network) isNameserver(to netip.AddrPort) bool {
	return n.Datagrams != nil && slices.Contains(n.Nameservers, to)
}

// answersAt reports whether a nameserver has a port.
func (n *network) answersAt(port uint16) bool {
	return n.Datagrams != nil && slices.ContainsFunc(n.Nameservers, func(ns netip.AddrPort) bool { return ns.Port() == port })
}

// udpRule is why a datagram is refused that the rules would let pass, where UDP isn't opened.
const udpRule = "UDP is refused: set udp of the policy's network to open it"

// send judges a datagram that isn't for a nameserver.
func (n *network) send(c *notification, a *address) {
	var errno unix.Errno
	if a.family != unix.AF_UNSPEC {
		_, errno = n.judge(a.to, UDP)
	}
	switch {
	case errno != 0:
		n.answer(c.id, errno)
	case !n.UDP:
		if a.to.IsValid() {
			n.denied.add(a.to, UDP, Verdict{Rule: udpRule})
		}
		n.answer(c.id, unix.EACCES)
	default:
		n.listener.proceed(c.id)
	}
}

// query hands a datagram to the resolver. It is sent as far as the command can tell.
func (n *network) query(t target, inode uint64, d *datagram) {
	if d.size > MaxQuery {
		n.answer(d.id, unix.EMSGSIZE)
		return
	}
	data := make([]byte, d.size)
	for read := 0; read < len(data); {
		got, err := t.read(data[read:], d.at+uint64(read))
		if err != nil || got == 0 {
			n.answer(d.id, errnoOf(err, unix.EFAULT))
			return
		}
		read += got
	}
	if !n.listener.isValid(d.id) {
		return
	}
	local, accepted := n.beginQuery(inode, d.to)
	if accepted {
		var once sync.Once
		n.Datagrams.Answer(data, func(answer []byte) { once.Do(func() { n.endQuery(d.to, local, answer) }) })
	}
	n.listener.finish(d.id, int64(d.size), 0)
}

// beginQuery returns where the answer goes to. It binds the socket if it isn't, as sending would.
func (n *network) beginQuery(inode uint64, nameserver netip.AddrPort) (local netip.AddrPort, accepted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sockets[inode]
	if s == nil || n.queries == maxQueries {
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
	n.queries++
	return local, true
}

// endQuery sends an answer from the nameserver's address: resolvers drop those from another one.
func (n *network) endQuery(nameserver, to netip.AddrPort, answer []byte) {
	n.mu.Lock()
	n.queries--
	closed := n.closed
	n.mu.Unlock()
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
