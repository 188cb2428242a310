package limits

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// maxForwarded bounds how many addresses of X-Forwarded-For are read, from the end.
const maxForwarded = 32

// Sources finds out which address a request comes from.
type Sources struct {
	// Proxies are the networks whose X-Forwarded-For header is trusted. Anybody can send that header.
	Proxies []netip.Prefix
}

// ParseProxies parses networks in CIDR notation and single addresses.
func ParseProxies(texts []string) ([]netip.Prefix, error) {
	var proxies []netip.Prefix
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			address = address.Unmap()
			proxies = append(proxies, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q must be an address or a network such as 10.0.0.0/8", text)
		}
		proxies = append(proxies, network.Masked())
	}
	return proxies, nil
}

// OfRequest returns the source of a request: the peer's address, or what trusted proxies report about their peer. The
// header is read from the end, because each proxy appends the address that it saw.
func (s *Sources) OfRequest(r *http.Request) string {
	at, ok := parseHostPort(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for n := 1; n <= min(len(forwarded), maxForwarded) && s.isProxy(at); n++ {
		before, ok := parseForwarded(forwarded[len(forwarded)-n])
		if !ok {
			break
		}
		at = before
	}
	return group(at)
}

// ofConnection returns the source of a connection, and whether that is a trusted proxy.
func (s *Sources) ofConnection(c net.Conn) (source string, proxy bool) {
	at, ok := parseHostPort(c.RemoteAddr().String())
	if !ok {
		return c.RemoteAddr().String(), false
	}
	return group(at), s.isProxy(at)
}

func (s *Sources) isProxy(address netip.Addr) bool {
	for _, network := range s.Proxies {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

func parseHostPort(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}, false
	}
	return address.Addr().Unmap().WithZone(""), true
}

// parseForwarded parses an element of X-Forwarded-For, with or without a port.
func parseForwarded(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if address, ok := parseHostPort(text); ok {
		return address, true
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return address.Unmap().WithZone(""), err == nil
}

// group returns the text under which an address is counted. One host can use all addresses of an IPv6 /64.
func group(address netip.Addr) string {
	if address.Is6() {
		network, err := address.Prefix(64)
		if err == nil {
			return network.String()
		}
	}
	return address.String()
}
