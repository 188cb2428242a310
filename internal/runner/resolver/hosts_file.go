package resolver

import (
	"bufio"
	"io"
	"net/netip"
	"strings"
)

// Bounds of /etc/hosts. What is beyond them is left out.
const (
	maxHostsBytes   = 256 << 10
	maxHostsEntries = 1024
)

// HostsEntry is a line of /etc/hosts.
type HostsEntry struct {
	Addr  netip.Addr
	Names []string
}

// ParseHosts reads /etc/hosts. As the C library does, it passes over lines that it can't read.
func ParseHosts(from io.Reader) []HostsEntry {
	var list []HostsEntry
	lines := bufio.NewScanner(io.LimitReader(from, maxHostsBytes))
	for lines.Scan() && len(list) < maxHostsEntries {
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
