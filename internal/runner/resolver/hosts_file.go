package resolver

import (
	"bufio"
	"io"
	"net/netip"
	"strings"
)

// HostsEntry is a line of /etc/hosts.
type HostsEntry struct {
	Addr  netip.Addr
	Names []string
}

// ParseHosts reads /etc/hosts. As the C library does, it passes over lines that it can't read.
func ParseHosts(from io.Reader) []HostsEntry {
	var list []HostsEntry
	for lines := bufio.NewScanner(from); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if addr, err := netip.ParseAddr(fields[0]); err == nil {
			list = append(list, HostsEntry{Addr: addr, Names: fields[1:]})
		}
	}
	return list
}
