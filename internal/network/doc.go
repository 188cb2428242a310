// Package network decides which addresses the processes of one call may connect to, and which names they may look up.
//
// Its input is Rules: a policy's network with what the call's own list of hosts leaves of it, and the addresses of the
// cluster that the call runs in. Rules are plain data with bounds, which travel to the runner as JSON. The operator
// validates them with Validate and narrows them with Narrow, adds the addresses of the node once it knows the node, and
// compiles them with Compile; the runner compiles the same Rules and calls Decide for each connection.
//
// Invariants:
//   - deniedCIDRs, link-local and metadata addresses, the node's own addresses and the API server's win over everything;
//   - hosts only narrow: what Rules with hosts allow, the same Rules without hosts allow too;
//   - an address in the cluster's networks needs allowInCluster, or an entry of allowed that names it: a CIDR that
//     contains it, or what it was looked up by, as a name that is written out or a wildcard below the cluster's own
//     domain. Whoever owns a name can point it into the cluster, so other wildcards open nothing there. Where a name of the
//     cluster is an alias, the last name of the chain must be allowed too, or an ExternalName Service would lead from a
//     namespace that is allowed into another;
//   - a name below the cluster's domain allows addresses in the cluster's networks only. Below pod.<domain>, where a name
//     spells the address that it has, no wildcard matches;
//   - an IPv4-mapped IPv6 address is the IPv4 address. An IPv6 address that embeds an IPv4 one (NAT64 with a well-known
//     prefix, 6to4, Teredo, ISATAP, IPv4-compatible and IPv4-translated) is denied if the embedded one is. A NAT64 prefix
//     of the site's own can't be recognized: list it in deniedCIDRs;
//   - loopback addresses and those in Surroundings.Pod are the pod's own. Every mode allows TCP to them, unless deniedCIDRs
//     contain them; UDP needs udp, as to anywhere. Nobody reaches the one that the calls' resolvers listen at. The kernel
//     connects 0.0.0.0 to loopback or to the address that the socket is bound to, which is the pod's own too, and :: to
//     loopback; so they count as 127.0.0.1 and ::1. What the runner listens on there is in reach of every call and must not
//     trust whoever connects;
//   - names are whole: an entry "redis" names what is looked up as redis, and not redis.ns.svc.cluster.local, which a search
//     list makes of it;
//   - rules that can't be compiled allow nothing, those among them whose surroundings aren't known. Every refusal says which
//     rule it is, and what would pass.
//
// The package imports the standard library only. It must not look up names, open sockets, read a clock, or keep state that
// changes: which names an address was given out for is an input.
package network
