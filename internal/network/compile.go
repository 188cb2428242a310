package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// Reason says in one word why a connection or a lookup is refused.
type Reason string

// The reasons of refusals.
const (
	ReasonModeNone  Reason = "ModeNone"
	ReasonNotListed Reason = "NotListed"
	// ReasonNotInHosts says that the policy allows it, and the call's own hosts don't.
	ReasonNotInHosts Reason = "NotInHosts"
	ReasonDeniedCIDR Reason = "DeniedCIDR"
	ReasonMetadata   Reason = "Metadata"
	ReasonNode       Reason = "Node"
	ReasonAPIServer  Reason = "APIServer"
	ReasonInCluster  Reason = "InCluster"
	// ReasonOutsideCluster says that a name of the cluster leads out of the cluster.
	ReasonOutsideCluster Reason = "OutsideCluster"
	ReasonUDP            Reason = "UDP"
	ReasonProtocol       Reason = "Protocol"
	ReasonResolver       Reason = "Resolver"
	ReasonNoAddress      Reason = "NoAddress"
)

// isFinal says that nothing in a policy allows what is refused for the reason.
func (r Reason) isFinal() bool {
	return slices.Contains([]Reason{ReasonMetadata, ReasonNode, ReasonAPIServer, ReasonResolver}, r)
}

// Resolvers is the loopback address that the resolvers of all calls of a pod listen at. Each has another port, and only the
// gate leads there: a call that connected on its own could ask for another call's names.
var Resolvers = netip.AddrFrom4([4]byte{127, 0, 0, 53})

// entry is an Entry that was parsed. No ports means every port: only an entry of hosts has none.
type entry struct {
	host
	ports []uint16
}

func (e *entry) hasPort(port uint16) bool {
	return port == anyPort || e.ports == nil || slices.Contains(e.ports, port)
}

// denial is a range of addresses that is denied whatever is allowed.
type denial struct {
	prefix netip.Prefix
	reason Reason
}

// Decider decides by compiled Rules. It doesn't change, so any number of goroutines may use it.
type Decider struct {
	mode           Mode
	udp            bool
	allowInCluster bool
	allowed        hosts
	narrowed       hosts
	denied         []denial
	cluster        []netip.Prefix
	// guessed are those of cluster that nobody said are the cluster's.
	guessed []netip.Prefix
	pod     []netip.Addr
	domain  string
}

// hosts are entries, in the order of the rules.
type hosts struct {
	list []*entry
	// pods is the domain below which no wildcard matches; empty if it isn't known.
	pods string
}

// naming returns the entries that name all that a host names. A cluster's DNS answers for every name of pods with the address
// that the name spells, so a wildcard above such a name would allow every address.
func (h *hosts) naming(other host) (found []*entry) {
	isPod := isBelow(other.name, h.pods)
	for _, e := range h.list {
		if e.contains(other) && !(isPod && e.below && e.name != other.name) {
			found = append(found, e)
		}
	}
	return found
}

// matches says whether an entry names a host, with a port.
func (h *hosts) matches(other host, port uint16) bool {
	return slices.ContainsFunc(h.naming(other), func(e *entry) bool { return e.hasPort(port) })
}

// Compile checks Rules and prepares them for decisions. The error joins one *Error for each wrong field, up to a bound.
// The addresses of node and API server must be known: what they don't name, nothing denies.
func Compile(r *Rules) (*Decider, error) {
	var p problems
	d := compile(r, &p)
	if r.Mode != None {
		r.Surroundings.check(&p)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	if len(r.Surroundings.Services) == 0 || len(r.Surroundings.Pods) == 0 {
		d.guessed = guess(d.pod)
		d.cluster = append(d.cluster, d.guessed...)
	}
	return d, nil
}

// Validate checks Rules whose surroundings needn't be known yet, such as those of a policy.
func Validate(r *Rules) error {
	var p problems
	compile(r, &p)
	return p.err()
}

// compile returns a Decider that may be used unless there are problems.
func compile(r *Rules, p *problems) *Decider {
	d := &Decider{mode: r.Mode, udp: r.UDP, allowInCluster: r.AllowInCluster}
	switch r.Mode {
	case None, Listed, Open:
	default:
		p.add("mode", "%s isn't a mode: use None, Listed or Open", quote(string(r.Mode)))
	}
	d.compileAllowed(r.Allowed, p)
	d.compileDenied(r.DeniedCIDRs, p)
	d.narrowed.list = compileHosts(r.Hosts, func(host) error { return nil }, p)
	d.compileSurroundings(&r.Surroundings, p)
	return d
}

func (d *Decider) compileAllowed(list []Entry, p *problems) {
	for i := range list {
		field := fmt.Sprintf("allowed[%d]", i)
		h, err := parseHost(list[i].Host)
		if err != nil {
			p.add(field+".host", "%v", err)
			continue
		}
		ports := compilePorts(list[i].Ports, field+".ports", p)
		d.allowed.list = append(d.allowed.list, &entry{h, ports})
	}
}

// Warnings say which entries of allowed open nothing.
func Warnings(r *Rules) (list []string) {
	for i := range r.Allowed {
		h, err := parseHost(r.Allowed[i].Host)
		if denied := containing(metadata, h.prefix); err == nil && denied.IsValid() {
			list = append(list, fmt.Sprintf("network.allowed[%d].host: %s is a link-local or metadata address (%s), which every policy denies: "+
				"remove it", i, h, denied))
		}
	}
	return list
}

func compilePorts(list []int, field string, p *problems) []uint16 {
	var ports []uint16
	for i, port := range list {
		if port < 1 || port > 65535 {
			p.add(fmt.Sprintf("%s[%d]", field, i), "%d isn't a port: use 1 to 65535", port)
			continue
		}
		ports = append(ports, uint16(port))
	}
	if len(list) == 0 {
		ports = []uint16{DefaultPort}
	}
	return ports
}

func (d *Decider) compileDenied(list []string, p *problems) {
	for i, text := range list {
		prefix, err := parsePrefix(text)
		if addr, isAddr := netip.ParseAddr(text); isAddr == nil {
			addr = addr.Unmap().WithZone("")
			err = fmt.Errorf("%s is an address: write %s", quote(text), netip.PrefixFrom(addr, addr.BitLen()))
		}
		if err != nil {
			p.add(fmt.Sprintf("deniedCIDRs[%d]", i), "%v", err)
			continue
		}
		d.denied = append(d.denied, denial{prefix, ReasonDeniedCIDR})
	}
}

// compileHosts reads the hosts of a call, which must pass a check.
func compileHosts(list []string, check func(host) error, p *problems) (all []*entry) {
	if len(list) > MaxHosts {
		p.add("hosts", "it has %d entries, and may have %d", len(list), MaxHosts)
		return nil
	}
	for i, text := range list {
		h, err := parseHost(text)
		if err == nil {
			err = check(h)
		}
		if err != nil {
			p.add(fmt.Sprintf("hosts[%d]", i), "%v", err)
			continue
		}
		all = append(all, &entry{host: h})
	}
	return all
}

// containing returns the first of the networks that contains a prefix whole. An invalid prefix is contained in none.
func containing(networks []netip.Prefix, prefix netip.Prefix) netip.Prefix {
	for _, network := range networks {
		if prefix.IsValid() && prefixContains(network, prefix) {
			return network
		}
	}
	return netip.Prefix{}
}
