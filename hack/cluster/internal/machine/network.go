package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
)

// UsedNetworks lists the IPv4 networks that the machine has routes to, those of its interfaces among them; default routes are
// left out.
func UsedNetworks() ([]netip.Prefix, error) {
	table, err := exec.Command("ip", "-4", "-oneline", "route").Output()
	if err != nil {
		return nil, fmt.Errorf("reading the routes: %w", err)
	}
	return parseRoutes(string(table)), nil
}

// parseRoutes reads what ip prints. A route begins with its destination, or with its type and then that.
func parseRoutes(table string) (routes []netip.Prefix) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		for _, word := range words[:min(2, len(words))] {
			if network, err := netip.ParsePrefix(word); err == nil {
				routes = append(routes, network)
			} else if address, err := netip.ParseAddr(word); err == nil {
				routes = append(routes, netip.PrefixFrom(address, address.BitLen()))
			}
		}
	}
	return routes
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
