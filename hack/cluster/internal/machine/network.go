package machine

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// UsedNetworks lists the IPv4 networks that the machine has addresses in or
// routes to; default routes are left out.
func UsedNetworks() ([]netip.Prefix, error) {
	text, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, fmt.Errorf("reading the routes: %w", err)
	}
	used, err := parseRoutes(string(text))
	if err != nil {
		return nil, err
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the interfaces' addresses: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			used = append(used, p.Masked())
		}
	}
	return used, nil
}

func parseRoutes(table string) ([]netip.Prefix, error) {
	var routes []netip.Prefix
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		f := strings.Fields(line)
		if i == 0 || len(f) < 8 {
			continue
		}
		dest, err1 := parseHexAddr(f[1])
		mask, err2 := parseHexAddr(f[7])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("route %q: %w", line, err)
		}
		ones, _ := net.IPMask(mask.AsSlice()).Size()
		if ones > 0 {
			routes = append(routes, netip.PrefixFrom(dest, ones))
		}
	}
	return routes, nil
}

func parseHexAddr(text string) (netip.Addr, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return netip.Addr{}, fmt.Errorf("%q is no IPv4 address", text)
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], binary.BigEndian.Uint32(raw))
	return netip.AddrFrom4(b), nil
}

// ChooseSubnet picks a /30 for the link to the node that overlaps none of the given networks.
func ChooseSubnet(used []netip.Prefix) (netip.Prefix, error) {
	for _, base := range [][2]byte{{10, 213}, {172, 29}, {192, 168}} {
		for third := range 256 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{base[0], base[1], byte(third), 0}), 30)
			if !slices.ContainsFunc(used, p.Overlaps) {
				return p, nil
			}
		}
	}
	return netip.Prefix{}, errors.New("no private network is free for the link to the node")
}
