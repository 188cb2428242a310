package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// host is what a refusal is told and counted under: a name is what the user wrote, an address is what it came to.
func (q *question) host() string {
	if len(q.names) > 0 {
		return q.firstName().Name
	}
	return q.addr.String()
}

// firstName is the one of several names that messages tell. There must be one.
func (q *question) firstName() LookedUp {
	return slices.MinFunc(q.names, func(a, b LookedUp) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Target, b.Target))
	})
}

func (q *question) refuse(reason Reason, rule string) Verdict {
	return Verdict{Reason: reason, Host: q.host(), Rule: rule}
}

// what names the destination with its port, if there is one, its address, if it was looked up, and what that embeds.
func (q *question) what() string {
	text := q.host()
	if q.port != anyPort {
		if strings.Contains(text, ":") {
			text = "[" + text + "]"
		}
		text += ":" + portText(q.port)
	}
	var details []string
	if len(q.names) > 0 && q.addr.IsValid() {
		details = append(details, q.addr.String())
	}
	if len(q.inner) > 0 {
		details = append(details, "which stands for "+joinAddrs(q.inner))
	}
	if len(details) > 0 {
		text += " (" + strings.Join(details, ", ") + ")"
	}
	return text
}

func joinAddrs(list []netip.Addr) string {
	var texts []string
	for _, addr := range list {
		texts = append(texts, addr.String())
	}
	return strings.Join(texts, " or ")
}

// entryFor is the entry that would allow the destination by a host.
func (q *question) entryFor(host string) string {
	if q.port == anyPort {
		return "{host: " + host + "}"
	}
	return "{host: " + host + ", ports: [" + portText(q.port) + "]}"
}

func portText(port uint16) string { return strconv.Itoa(int(port)) }

func (q *question) messageNone() string {
	return fmt.Sprintf("%s is refused, as the policy's network.mode is None: set mode Listed, and add %s to network.allowed", q.what(), q.entryFor(q.host()))
}

// messageNotListed tells apart a host that isn't there and one that is there with other ports.
func (d *Decider) messageNotListed(q *question) string {
	entries, host := d.matching(q)
	if q.port == anyPort || len(entries) == 0 {
		host = d.hostFor(q, func(string) bool { return true })
		return fmt.Sprintf("%s isn't in the policy's network.allowed: add %s%s", q.what(), q.entryFor(host), d.andHosts(q, host))
	}
	var ports []uint16
	for _, e := range entries {
		ports = append(ports, e.ports...)
	}
	slices.Sort(ports)
	return fmt.Sprintf("%s isn't in the policy's network.allowed, which has %s with ports %v: add %s to its ports%s",
		q.what(), entries[0], slices.Compact(ports), portText(q.port), d.andHosts(q, host))
}

// matching returns the entries that allow some port of the destination, and the name or the address that the first one is for.
func (d *Decider) matching(q *question) (found []*entry, host string) {
	for _, n := range q.names {
		if d.counts(n, q.addr) {
			found = append(found, d.allowed.naming(byName(n.Name))...)
		}
		if host == "" && len(found) > 0 {
			host = n.Name
		}
	}
	return append(found, d.allowed.naming(byAddr(q.addr))...), cmp.Or(host, q.addr.String())
}

func (d *Decider) messageNotInHosts(q *question) string {
	host := d.hostFor(q, func(name string) bool { return d.allows(byName(name), q.port) })
	return fmt.Sprintf("%s isn't in the call's network.hosts: add %s to it, or leave hosts out", q.what(), host)
}

func (q *question) messageUDP() string {
	return fmt.Sprintf("UDP to %s is refused: use TCP, or set the policy's network.udp", q.what())
}

// messageDenied names the address that is denied: the destination, or one that it embeds.
func (q *question) messageDenied(d *denial, addr netip.Addr) string {
	subject := q.subject(addr)
	switch d.reason {
	case ReasonMetadata:
		if addr.IsLinkLocalUnicast() && addr != netip.AddrFrom4([4]byte{169, 254, 169, 254}) {
			return subject + " is a link-local address" + neverPasses + "use another address of the host"
		}
		return subject + " is a metadata address" + neverPasses + "give the call its credentials by the environment's secrets"
	case ReasonResolver:
		return subject + " is the address of the calls' resolvers" + neverPasses + "ask the nameserver of /etc/resolv.conf"
	case ReasonNode:
		return subject + " is an address of the node" + neverPasses + "put a Service before what listens there, and allow that one"
	case ReasonAPIServer:
		return subject + " is an address of the cluster's API server" + neverPasses +
			"have a server of your own make the requests, and allow that one"
	default:
		return fmt.Sprintf("%s is in %s of the policy's network.deniedCIDRs, which win over everything: take it out of them, or use another address",
			subject, d.prefix)
	}
}

// subject names an address, and how the destination leads to it.
func (q *question) subject(addr netip.Addr) string {
	text := addr.String()
	if addr != q.addr {
		text += ", which " + q.addr.String() + " stands for,"
	}
	if len(q.names) > 0 {
		text += " (" + q.host() + ")"
	}
	return text
}

// messageInCluster tells what would open the address in: the name that it was looked up by, if there is one.
func (d *Decider) messageInCluster(q *question, network netip.Prefix, in netip.Addr) string {
	text := fmt.Sprintf("%s is in the cluster's network %s", q.subject(in), network)
	if slices.Contains(d.guessed, network) {
		text = fmt.Sprintf("%s is in %s (taken for a network of the cluster, as its own aren't known)", q.subject(in), network)
	}
	host := in.String()
	switch {
	case in != q.addr:
		inner := question{addr: in, port: q.port}
		return text + ": connect to " + host + " itself, and add " + q.entryFor(host) + toAllowed + d.orInCluster(&inner) + d.andHosts(&inner, host)
	case len(q.names) == 0:
		return text + ": add " + d.openedBy(q, host)
	}
	n := q.firstName()
	closed := n.Name
	if d.opensName(n.Name, q.port) {
		text += ", and " + n.Name + " is an alias of " + n.Target
		closed = n.Target
	}
	if d.withoutHosts().opensName(closed, q.port) {
		return text + ": add " + closed + " to the call's network.hosts, or leave hosts out"
	}
	return text + ": add " + d.openedBy(q, closed)
}

const toAllowed = " to the policy's network.allowed"

// openedBy tells an entry that opens an address of the cluster, with what else it takes or would do.
func (d *Decider) openedBy(q *question, host string) string {
	return q.entryFor(host) + toAllowed + d.orInCluster(q) + d.andHosts(q, host)
}

func (d *Decider) messageOutsideCluster(q *question) string {
	text := q.subject(q.addr) + " isn't in the cluster's networks, and a name of the cluster allows only what is: add "
	if d.mode == Open {
		return text + q.addr.String() + " to the call's network.hosts, or leave hosts out"
	}
	return text + q.entryFor(q.addr.String()) + toAllowed + d.andHosts(q, q.addr.String())
}
