package supervisor

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// gateways are the addresses by which the pod's traffic leaves it. Most network plugins give the node an address in the pods' networks for
// that. The Node object doesn't have it, and the kubelet listens there too. The tables are those of the kernel, as proc(5) describes
// them.
func gateways() (list []netip.Addr) {
	add := func(path string, nextHop func(fields []string) (netip.Addr, bool)) {
		// A kernel without the table has no such routes.
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if addr, is := nextHop(strings.Fields(line)); is && !addr.IsUnspecified() && !slices.Contains(list, addr) {
				list = append(list, addr)
			}
		}
	}
	add("/proc/self/net/route", nextHop4)
	add("/proc/self/net/ipv6_route", nextHop6)
	return list
}

// nextHop4 is the gateway of a line: interface, destination, gateway and flags, then more. The addresses are numbers in the machine's
// order.
func nextHop4(fields []string) (netip.Addr, bool) {
	if len(fields) < 4 {
		return netip.Addr{}, false
	}
	number, err := strconv.ParseUint(fields[2], 16, 32)
	if err != nil {
		return netip.Addr{}, false
	}
	var raw [4]byte
	binary.NativeEndian.PutUint32(raw[:], uint32(number))
	return netip.AddrFrom4(raw), true
}

// nextHop6 is the gateway of a line: destination and its length, source and its length, gateway, then more.
func nextHop6(fields []string) (netip.Addr, bool) {
	if len(fields) < 5 {
		return netip.Addr{}, false
	}
	raw, err := hex.DecodeString(fields[4])
	addr, is := netip.AddrFromSlice(raw)
	return addr.Unmap(), err == nil && is
}
