package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

const (
	maxName  = 253
	maxLabel = 63
	// maxQuoted is how many bytes of a wrong value a message repeats.
	maxQuoted = 80
	wildcard  = "*."
)

// host is what an entry names: a prefix if that is valid, otherwise a name or everything below it.
type host struct {
	name   string
	below  bool
	prefix netip.Prefix
}

func byName(name string) host { return host{name: name} }

func byAddr(addr netip.Addr) host { return host{prefix: netip.PrefixFrom(addr, addr.BitLen())} }

// String is the canonical notation.
func (h host) String() string {
	switch {
	case h.prefix.IsValid() && h.prefix.IsSingleIP():
		return h.prefix.Addr().String()
	case h.prefix.IsValid():
		return h.prefix.String()
	case h.below:
		return wildcard + h.name
	default:
		return h.name
	}
}

// contains says that everything that other names is named by h too.
func (h host) contains(other host) bool {
	switch {
	case h.prefix.IsValid() != other.prefix.IsValid():
		return false
	case h.prefix.IsValid():
		return prefixContains(h.prefix, other.prefix)
	case h.below:
		return isBelow(other.name, h.name) || other.below && other.name == h.name
	default:
		return h == other
	}
}

func prefixContains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// isBelow says that name has at least one label more than parent.
func isBelow(name, parent string) bool {
	return len(name) > len(parent)+1 && name[len(name)-len(parent)-1] == '.' && strings.HasSuffix(name, parent)
}

func parseHost(text string) (host, error) {
	switch {
	case text == "":
		return host{}, errors.New("it is empty: name a host, such as packages.example.com")
	case strings.Contains(text, "://"):
		return host{}, fmt.Errorf("%s is a URL: write its host alone, such as packages.example.com", quote(text))
	case strings.Contains(text, "/"):
		prefix, err := parsePrefix(text)
		return host{prefix: prefix}, err
	case strings.Contains(text, ":") || looksNumeric(text):
		addr, err := parseAddr(text)
		if err != nil {
			return host{}, err
		}
		return byAddr(addr), nil
	case text == "*":
		return host{}, errors.New(`"*" would name every host: list the hosts, or set mode Open`)
	}
	rest, below := strings.CutPrefix(text, wildcard)
	name, err := Name(rest)
	return host{name: name, below: below}, err
}

// looksNumeric says that a text's last label is a number: no name ends so, and clients take it for an IPv4 address.
func looksNumeric(text string) bool {
	text = strings.TrimSuffix(text, ".")
	last := text[strings.LastIndexByte(text, '.')+1:]
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

func parseAddr(text string) (netip.Addr, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, _, _ = strings.Cut(inner, "]")
		return netip.Addr{}, fmt.Errorf("%s has brackets: write %s, and the port into ports", quote(text), quote(inner))
	}
	if name, port, ok := strings.Cut(text, ":"); ok && !strings.Contains(port, ":") {
		return netip.Addr{}, fmt.Errorf("%s has a port: write %s, and %s into ports", quote(text), quote(name), quote(port))
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s isn't an IP address, and a name doesn't end with a number: write an address such as 192.0.2.7 or 2001:db8::7", quote(text))
	}
	switch {
	case addr.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%s has a zone: write %s", quote(text), addr.WithZone(""))
	case addr.Is4In6():
		return netip.Addr{}, fmt.Errorf("%s is an IPv4 address in IPv6 notation: write %s", quote(text), addr.Unmap())
	case addr.IsUnspecified():
		return netip.Addr{}, fmt.Errorf("%s is no host: write %s/0 for every address", quote(text), addr)
	}
	return addr, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s isn't a CIDR: write one such as 192.0.2.0/24 or 2001:db8::/32", quote(text))
	}
	addr := prefix.Addr()
	if addr.Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s mixes IPv4 and IPv6: write 0.0.0.0/0 for IPv4 and an IPv6 CIDR of its own", quote(text))
		}
		plain := netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96).Masked()
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4 CIDR in IPv6 notation: write %s", quote(text), plain)
	}
	if masked := prefix.Masked(); masked != prefix {
		return netip.Prefix{}, fmt.Errorf("%s has bits set after its first %d: write %s for the network, or %s for the one address",
			quote(text), prefix.Bits(), masked, addr)
	}
	return prefix, nil
}

// Name returns the canonical form of a DNS name: ASCII, in lower case, without the trailing dot. It refuses what no host can
// be named. An underscore is accepted, as some hosts have one.
func Name(text string) (string, error) {
	name := strings.TrimSuffix(text, ".")
	switch {
	case name == "":
		return "", fmt.Errorf("%s isn't a name: write one such as packages.example.com", quote(text))
	case len(name) > maxName:
		return "", fmt.Errorf("%s has %d bytes, and a name has at most %d", quote(text), len(name), maxName)
	}
	for i := range len(name) {
		if name[i] >= 0x80 {
			return "", fmt.Errorf("%s isn't ASCII: write the form that starts with xn--", quote(text))
		}
	}
	name = strings.ToLower(name)
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%s isn't a name: %w", quote(text), err)
		}
	}
	if looksNumeric(name) {
		return "", fmt.Errorf("%s isn't a name: its last label is a number", quote(text))
	}
	return name, nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("between two dots, and at its start, there must be a label")
	case len(label) > maxLabel:
		return fmt.Errorf("a label has %d bytes, and may have %d", len(label), maxLabel)
	case strings.Contains(label, "*"):
		return errors.New(`"*" stands for whole labels at the start alone, as in *.example.com`)
	case label[0] == '-' || label[len(label)-1] == '-':
		return errors.New("a label starts or ends with a hyphen")
	}
	for i := range len(label) {
		switch c := label[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return fmt.Errorf("it contains %q, and may contain letters, digits, hyphens, underscores and dots", c)
		}
	}
	return nil
}

// quote repeats the start of a wrong value, without characters that change what a terminal shows.
func quote(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%.*q…", maxQuoted, text)
	}
	return fmt.Sprintf("%q", text)
}
