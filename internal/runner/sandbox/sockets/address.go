package sockets

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// Offsets in struct sockaddr_in and sockaddr_in6, and the least lengths that the kernel takes.
const (
	offPort     = 2
	offAddress4 = 4
	offAddress6 = 8
	leastIPv4   = unix.SizeofSockaddrInet4
	leastIPv6   = 24
	// leastAddress holds the family.
	leastAddress = 2
)

// maxAddress is the size of struct sockaddr_storage.
const maxAddress = 128

// address is what a thread wants to connect to, in this process's memory.
type address struct {
	// raw is the structure for the kernel.
	raw []byte
	// family is AF_INET, AF_INET6, or AF_UNSPEC, which disconnects.
	family uint16
	// to is the address without mapping and zone. Neither tells where a connection goes.
	to netip.AddrPort
}

// readAddress reads a socket's address from the thread's memory, once.
func readAddress(t kernel.Thread, at uint64, length int) ([]byte, unix.Errno) {
	if length < 0 || length > maxAddress {
		return nil, unix.EINVAL
	}
	raw := make([]byte, length)
	return raw, t.Fill(raw, at)
}

// portOf is the port that the kernel finds in an address of IPv4 or IPv6; 0 if there is none.
func portOf(raw []byte) uint16 {
	if len(raw) < offAddress4 {
		return 0
	}
	return binary.BigEndian.Uint16(raw[offPort:])
}

// parseAddress understands what the kernel would. It replaces the unspecified address, which the kernel takes for this
// machine, by the loopback address.
func parseAddress(raw []byte) (address, unix.Errno) {
	if len(raw) < leastAddress {
		return address{}, unix.EINVAL
	}
	a := address{raw: raw, family: binary.NativeEndian.Uint16(raw)}
	switch {
	case a.family == unix.AF_UNSPEC:
		return a, 0
	case a.family == unix.AF_INET && len(raw) >= leastIPv4, a.family == unix.AF_INET6 && len(raw) >= leastIPv6:
		a.read()
	case a.family == unix.AF_INET, a.family == unix.AF_INET6:
		return a, unix.EINVAL
	default:
		return a, unix.EAFNOSUPPORT
	}
	if a.to.Addr().IsUnspecified() {
		loopback := netip.IPv6Loopback()
		if a.to.Addr().Is4() {
			loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		return a, a.redirect(netip.AddrPortFrom(loopback, a.to.Port()))
	}
	return a, 0
}

func (a *address) read() {
	port := binary.BigEndian.Uint16(a.raw[offPort:])
	var ip netip.Addr
	if a.family == unix.AF_INET {
		ip = netip.AddrFrom4([4]byte(a.raw[offAddress4:]))
	} else {
		ip = netip.AddrFrom16([16]byte(a.raw[offAddress6:]))
	}
	a.to = netip.AddrPortFrom(ip.Unmap(), port)
}

// redirect changes where the connection goes.
func (a *address) redirect(to netip.AddrPort) unix.Errno {
	ip := to.Addr().Unmap().WithZone("")
	switch {
	case a.family == unix.AF_INET && ip.Is4():
		copy(a.raw[offAddress4:], ip.AsSlice())
	case a.family == unix.AF_INET6:
		mapped := ip.As16()
		copy(a.raw[offAddress6:], mapped[:])
		clear(a.raw[offAddress6+len(mapped):]) // the scope is of another address
	default:
		return unix.EAFNOSUPPORT
	}
	binary.BigEndian.PutUint16(a.raw[offPort:], to.Port())
	a.to = netip.AddrPortFrom(ip, to.Port())
	return 0
}

// encodeAddress returns the structure for an address.
func encodeAddress(to netip.AddrPort) unix.Sockaddr {
	if ip := to.Addr().Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Addr: ip.As4(), Port: int(to.Port())}
	}
	return &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}

// localAddress is the one that a socket is bound to; unmapped.
func localAddress(fd int) netip.AddrPort {
	local, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch l := local.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(l.Addr), uint16(l.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(l.Addr).Unmap(), uint16(l.Port))
	default:
		return netip.AddrPort{}
	}
}

// connectSocket is connect with an address of any length, bindSocket is bind.
func connectSocket(fd int, raw []byte) unix.Errno { return withAddress(unix.SYS_CONNECT, fd, raw) }

func bindSocket(fd int, raw []byte) unix.Errno { return withAddress(unix.SYS_BIND, fd, raw) }

func withAddress(call uintptr, fd int, raw []byte) unix.Errno {
	for {
		_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(raw))), uintptr(len(raw)))
		if errno != unix.EINTR {
			return errno
		}
	}
}
