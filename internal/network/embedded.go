package network

import "net/netip"

// embedding is a kind of IPv6 addresses that hold an IPv4 address which somebody translates to.
type embedding struct {
	prefix netip.Prefix
	// at are the four bytes of the IPv4 address.
	at [4]int
	// inverted says that the bytes are stored inverted.
	inverted bool
}

var lowest = [4]int{12, 13, 14, 15}

var embeddings = []embedding{
	// NAT64, RFC 6052.
	{prefix: netip.MustParsePrefix("64:ff9b::/96"), at: lowest},
	// NAT64 for local use, RFC 8215: a site chooses a prefix of 48, 56, 64 or 96 bits in it, and RFC 6052 where the
	// address is. Which one it is can't be seen, so each counts.
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: lowest},
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [4]int{6, 7, 9, 10}},
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [4]int{7, 9, 10, 11}},
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [4]int{9, 10, 11, 12}},
	// 6to4, RFC 3056.
	{prefix: netip.MustParsePrefix("2002::/16"), at: [4]int{2, 3, 4, 5}},
	// Teredo, RFC 4380: the server, and the client.
	{prefix: netip.MustParsePrefix("2001::/32"), at: [4]int{4, 5, 6, 7}},
	{prefix: netip.MustParsePrefix("2001::/32"), at: lowest, inverted: true},
	// IPv4-compatible, RFC 4291, and IPv4-translated, RFC 2765.
	{prefix: netip.MustParsePrefix("::/96"), at: lowest},
	{prefix: netip.MustParsePrefix("::ffff:0:0:0/96"), at: lowest},
}

// embedded returns the IPv4 addresses that an IPv6 address may stand for.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() || addr.IsLoopback() || addr.IsUnspecified() {
		return nil
	}
	var found []netip.Addr
	bytes := addr.As16()
	for i := range embeddings {
		if e := &embeddings[i]; e.prefix.Contains(addr) {
			found = appendIPv4(found, bytes, e.at, e.inverted)
		}
	}
	// ISATAP, RFC 5214: any prefix, with or without the universal bit.
	if bytes[8]&^2 == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe {
		found = appendIPv4(found, bytes, lowest, false)
	}
	return found
}

// appendIPv4 leaves 0.0.0.0/8 out, which no translator sends to: where the address isn't, there are often zeros.
func appendIPv4(found []netip.Addr, bytes [16]byte, at [4]int, inverted bool) []netip.Addr {
	var plain [4]byte
	for i, from := range at {
		plain[i] = bytes[from]
		if inverted {
			plain[i] = ^plain[i]
		}
	}
	if plain[0] == 0 {
		return found
	}
	return append(found, netip.AddrFrom4(plain))
}
