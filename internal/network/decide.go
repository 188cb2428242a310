package network

import (
	"net/netip"
	"slices"
)

// Protocol is what a connection is made with.
type Protocol uint8

// The protocols that rules know. TCP is the zero value.
const (
	TCP Protocol = iota
	UDP
	// RouteLookup is connecting a UDP socket that can't send. A process learns its own address by it and nothing leaves: getaddrinfo
	// sorts addresses by that. Its port may be 0. It is allowed if Reachable allows the address.
	RouteLookup
)

// String is what messages call a protocol.
func (p Protocol) String() string {
	if p == TCP {
		return "TCP"
	}
	return "UDP"
}

// anyPort asks whether there is a port that passes.
const anyPort = 0

// Connection is what a process asks for.
type Connection struct {
	To       netip.AddrPort
	Protocol Protocol
	// Names are those that the resolver gave the address out for and that are valid still.
	Names []LookedUp
}

// LookedUp is a name that an address was given out for, in the canonical form of Name.
type LookedUp struct {
	Name string
	// Target is the last name of the chain of aliases that starts with Name. Without aliases it is Name.
	Target string
}

// Verdict is a decision. Unless it is allowed, the other fields say why not.
type Verdict struct {
	Allowed bool
	Reason  Reason
	// Host is what was refused: the name that the address was looked up by, or the address.
	Host string
	// Rule says which rule refuses it, and what would pass.
	Rule string
}

// Decide says whether a connection is allowed.
func (d *Decider) Decide(c Connection) Verdict {
	if c.Protocol == RouteLookup {
		return d.Reachable(c.To.Addr(), c.Names...)
	}
	if !c.To.IsValid() || c.To.Port() == 0 {
		return Verdict{Reason: ReasonNoAddress, Host: c.To.String(), Rule: "a connection needs an address and a port"}
	}
	a := ask(c.To.Addr(), c.Names)
	a.port = c.To.Port()
	switch {
	case c.Protocol > RouteLookup:
		return a.refuse(ReasonProtocol, a.what()+" is refused, as its protocol isn't known: use TCP")
	case c.Protocol == UDP && !d.udp:
		return d.refuseUDP(&a)
	}
	return d.decide(a)
}

// refuseUDP says what else refuses the destination, so that nobody opens UDP for nothing.
func (d *Decider) refuseUDP(q *question) Verdict {
	v := d.decide(*q)
	switch {
	case v.Allowed:
		return q.refuse(ReasonUDP, q.messageUDP())
	case v.Reason.isFinal():
		return v
	default:
		return q.refuse(ReasonUDP, q.messageUDP()+"; besides, "+v.Rule)
	}
}

// Reachable says whether there is a TCP port that Decide allows for an address that was looked up by the names.
func (d *Decider) Reachable(addr netip.Addr, names ...LookedUp) Verdict {
	if !addr.IsValid() {
		return Verdict{Reason: ReasonNoAddress, Host: addr.String(), Rule: "a connection needs an address"}
	}
	return d.decide(ask(addr, names))
}

// question is a connection with what is known of its address.
type question struct {
	addr  netip.Addr
	port  uint16
	names []LookedUp
	// inner are the IPv4 addresses that the address embeds.
	inner []netip.Addr
}

func ask(addr netip.Addr, names []LookedUp) question {
	addr = addr.Unmap().WithZone("")
	switch {
	case !addr.IsUnspecified():
	case addr.Is4():
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		addr = netip.IPv6Loopback()
	}
	return question{addr: addr, names: names, inner: embedded(addr)}
}

// addresses are the address and what it embeds.
func (q *question) addresses() []netip.Addr { return append([]netip.Addr{q.addr}, q.inner...) }

func (d *Decider) decide(q question) Verdict {
	if v, denied := d.deniedAlways(&q); denied {
		return v
	}
	if d.isOwn(q.addr) {
		return Verdict{Allowed: true}
	}
	if d.mode == None {
		return q.refuse(ReasonModeNone, q.messageNone())
	}
	if network, in := d.closedCluster(&q); in.IsValid() {
		return q.refuse(ReasonInCluster, d.messageInCluster(&q, network, in))
	}
	if d.hasWitness(&q) {
		return Verdict{Allowed: true}
	}
	if slices.ContainsFunc(q.names, func(n LookedUp) bool { return d.passes(byName(n.Name), q.port) }) {
		return q.refuse(ReasonOutsideCluster, d.messageOutsideCluster(&q))
	}
	if d.mode == Open || d.withoutHosts().hasWitness(&q) {
		return q.refuse(ReasonNotInHosts, d.messageNotInHosts(&q))
	}
	return q.refuse(ReasonNotListed, d.messageNotListed(&q))
}

// deniedAlways says whether the address, or one that it embeds, is denied whatever is allowed.
func (d *Decider) deniedAlways(q *question) (Verdict, bool) {
	for _, addr := range q.addresses() {
		for i := range d.denied {
			if d.denied[i].prefix.Contains(addr) {
				return q.refuse(d.denied[i].reason, q.messageDenied(&d.denied[i], addr)), true
			}
		}
	}
	return Verdict{}, false
}

// closedCluster returns a network of the cluster that is closed to the connection, and the address that is in it: that of
// the connection or one that it embeds.
func (d *Decider) closedCluster(q *question) (netip.Prefix, netip.Addr) {
	if d.allowInCluster {
		return netip.Prefix{}, netip.Addr{}
	}
	for _, addr := range q.addresses() {
		network := containing(d.cluster, netip.PrefixFrom(addr, addr.BitLen()))
		if network.IsValid() && !d.opensCluster(q, addr) {
			return network, addr
		}
	}
	return netip.Prefix{}, netip.Addr{}
}

// opensCluster says whether an entry of allowed names the address in, which is one of the cluster: a CIDR that contains it, or
// an entry for a name that it was looked up by. Where that is a name of the cluster and an alias, the name that it stands for
// must be allowed too: whoever may add an alias to one namespace must not lead into another. Nothing opens an address that is
// only embedded in another one.
func (d *Decider) opensCluster(q *question, in netip.Addr) bool {
	if in != q.addr {
		return false
	}
	return d.allowed.matches(byAddr(in), q.port) || slices.ContainsFunc(q.names, func(n LookedUp) bool {
		foreign := d.domain != "" && !d.isOfCluster(n.Name)
		return d.opensName(n.Name, q.port) && (foreign || d.opensName(n.Target, q.port))
	})
}

// opensName says whether an entry of allowed opens the cluster for what a name was looked up to: one that writes the name out, or a
// wildcard below the cluster's domain. Names below another wildcard can be anybody's.
func (d *Decider) opensName(name string, port uint16) bool {
	return d.covers(byName(name)) && slices.ContainsFunc(d.allowed.naming(byName(name)), func(e *entry) bool {
		return e.hasPort(port) && (!e.below || e.name == d.domain || isBelow(e.name, d.domain))
	})
}

// isOfCluster says whether a name is below the cluster's domain.
func (d *Decider) isOfCluster(name string) bool { return isBelow(name, d.domain) }

// InCluster says whether an address is in the cluster's networks.
func (d *Decider) InCluster(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return addr.IsValid() && containing(d.cluster, netip.PrefixFrom(addr, addr.BitLen())).IsValid()
}

// hasWitness says whether the address itself, or one of its names, is allowed by the policy and by the call's hosts. Both
// must hold for the same one, or two names of an address could lend each other what each lacks. A name of the cluster counts
// for addresses of the cluster alone: whoever may add a Service could give it any address.
func (d *Decider) hasWitness(q *question) bool {
	if d.passes(byAddr(q.addr), q.port) {
		return true
	}
	return slices.ContainsFunc(q.names, func(n LookedUp) bool {
		return d.passes(byName(n.Name), q.port) && d.counts(n, q.addr)
	})
}

// passes says whether both the policy and the call's hosts allow a host.
func (d *Decider) passes(h host, port uint16) bool { return d.allows(h, port) && d.covers(h) }

func (d *Decider) allows(h host, port uint16) bool {
	return d.mode == Open || d.mode == Listed && d.allowed.matches(h, port)
}

func (d *Decider) covers(h host) bool {
	return len(d.narrowed.list) == 0 || d.narrowed.matches(h, anyPort)
}

func (d *Decider) withoutHosts() *Decider {
	wider := *d
	wider.narrowed = hosts{}
	return &wider
}

// Lookup says whether a name may be looked up. It must be in the canonical form of Name.
func (d *Decider) Lookup(name string) Verdict {
	q := question{names: []LookedUp{{Name: name, Target: name}}}
	switch {
	case d.mode == None:
		return q.refuse(ReasonModeNone, q.messageNone())
	case !d.allows(byName(name), anyPort):
		return q.refuse(ReasonNotListed, d.messageNotListed(&q))
	case !d.covers(byName(name)):
		return q.refuse(ReasonNotInHosts, d.messageNotInHosts(&q))
	}
	return Verdict{Allowed: true}
}

// IsOpen says whether every name may be looked up. Records other than addresses may then be passed on: they lead to names and
// addresses that nobody lists.
func (d *Decider) IsOpen() bool { return d.mode == Open && len(d.narrowed.list) == 0 }
