package filter

import "golang.org/x/sys/unix"

// socketTypeMask is the part of a socket's type that isn't flags.
const socketTypeMask = 0xf

// flowLabels is IPV6_FLOWLABEL_MGR: a flow label can have a routing header.
const flowLabels = 32

// Options that make packets go elsewhere than to the address that was decided about, or make the kernel send by itself.
var (
	// A source route is followed before the address. Joining a group is said on the network.
	refusedIPv4 = []uint32{unix.IP_OPTIONS}
	joinIPv4    = []uint32{unix.IP_ADD_MEMBERSHIP, unix.IP_ADD_SOURCE_MEMBERSHIP, unix.MCAST_JOIN_GROUP, unix.MCAST_JOIN_SOURCE_GROUP}
	refusedIPv6 = []uint32{unix.IPV6_RTHDR, unix.IPV6_RTHDRDSTOPTS, unix.IPV6_HOPOPTS, unix.IPV6_DSTOPTS, unix.IPV6_2292PKTOPTIONS, flowLabels}
	joinIPv6    = []uint32{unix.IPV6_ADD_MEMBERSHIP, unix.IPV6_JOIN_ANYCAST, unix.MCAST_JOIN_GROUP, unix.MCAST_JOIN_SOURCE_GROUP}
)

// offlineFilter allows Unix sockets only.
//
// It can't refuse sockets that another process passes through a Unix socket, what a server on a Unix socket does for the
// command, and tracing a process of the same user that has no filter.
func offlineFilter() []unix.SockFilter {
	var f []unix.SockFilter
	for _, number := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		f = append(f, on(number, load(offArg0), jumpEqual(unix.AF_UNIX, 0, 1), allow, deny(unix.EACCES))...)
	}
	return f
}

// networkFilter hands to the gate what the network needs, and refuses what neither the gate nor Landlock would see.
func networkFilter(udp, allSockets bool) []unix.SockFilter {
	local := allow
	if allSockets {
		local = notify
	}
	f := socketFilter(local)
	for _, number := range []uint32{unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN} {
		f = append(f, on(number, notify)...)
	}
	f = append(f, sendFilter()...)
	return append(f, optionFilter(udp)...)
}

// socketFilter lets Unix sockets and the netlink of routes pass, which getaddrinfo needs. The gate makes TCP and UDP
// sockets, and Unix sockets where it is asked about them. Everything else is refused: raw, packet and ping sockets, MPTCP, SCTP, SMC
// and UDP-Lite, other families.
func socketFilter(local unix.SockFilter) []unix.SockFilter {
	return append(on(unix.SYS_SOCKET,
		load(offArg0),
		jumpEqual(unix.AF_UNIX, 0, 1), local,
		jumpEqual(unix.AF_NETLINK, 0, 4), load(offArg2), jumpEqual(unix.NETLINK_ROUTE, 0, 1), allow, deny(unix.EPROTONOSUPPORT),
		jumpEqual(unix.AF_INET, 2, 0), jumpEqual(unix.AF_INET6, 1, 0), deny(unix.EAFNOSUPPORT),
		load(offArg1), and(socketTypeMask),
		jumpEqual(unix.SOCK_STREAM, 0, 5), load(offArg2), jumpEqual(0, 1, 0), jumpEqual(unix.IPPROTO_TCP, 0, 1), notify, deny(unix.EPROTONOSUPPORT),
		jumpEqual(unix.SOCK_DGRAM, 0, 5), load(offArg2), jumpEqual(0, 1, 0), jumpEqual(unix.IPPROTO_UDP, 0, 1), notify, deny(unix.EACCES),
		deny(unix.EPERM)),
		on(unix.SYS_SOCKETPAIR, load(offArg0), jumpEqual(unix.AF_UNIX, 0, 1), allow, deny(unix.EOPNOTSUPP))...)
}

// sendFilter refuses fast open, which connects while it sends, and hands datagrams with an address to the gate. An
// address within a message can't be seen here; a socket that may not send can't send that either.
func sendFilter() []unix.SockFilter {
	f := on(unix.SYS_SENDTO,
		load(offArg3), unlessSet(unix.MSG_FASTOPEN), deny(unix.EOPNOTSUPP),
		load(offArg4), jumpEqual(0, 0, 3), load(offArg4High), jumpEqual(0, 0, 1), allow,
		notify)
	f = append(f, on(unix.SYS_SENDMSG, load(offArg2), unlessSet(unix.MSG_FASTOPEN), deny(unix.EOPNOTSUPP), allow)...)
	return append(f, on(unix.SYS_SENDMMSG, load(offArg3), unlessSet(unix.MSG_FASTOPEN), deny(unix.EOPNOTSUPP), allow)...)
}

func optionFilter(udp bool) []unix.SockFilter {
	ipv4, ipv6 := refusedIPv4, refusedIPv6
	if !udp {
		ipv4, ipv6 = append(ipv4[:len(ipv4):len(ipv4)], joinIPv4...), append(ipv6[:len(ipv6):len(ipv6)], joinIPv6...)
	}
	f := []unix.SockFilter{load(offArg1)}
	for _, level := range []struct {
		number  uint32
		options []uint32
		errno   unix.Errno
	}{
		{unix.IPPROTO_IP, ipv4, unix.EPERM},
		{unix.IPPROTO_IPV6, ipv6, unix.EPERM},
		// Another protocol's layer can replace the socket's own operations: SMC connects without asking Landlock. Libraries
		// do without where the kernel has none.
		{unix.IPPROTO_TCP, []uint32{unix.TCP_ULP}, unix.ENOENT},
	} {
		refuse := []unix.SockFilter{load(offArg2)}
		for _, option := range level.options {
			refuse = append(refuse, jumpEqual(option, 0, 1), deny(level.errno))
		}
		f = append(f, on(level.number, append(refuse, allow)...)...)
	}
	return on(unix.SYS_SETSOCKOPT, append(f, allow)...)
}
