package network

import (
	"net/netip"
	"slices"
	"strings"
)

// neverPasses is what a refusal says that nothing in a policy changes.
const neverPasses = ", which no policy allows: " //nolint:gosec // no credential

// counts says whether a name may allow the address: one of the cluster doesn't where it leads out of the cluster.
func (d *Decider) counts(n LookedUp, addr netip.Addr) bool {
	return !addr.IsValid() || !d.isOfCluster(n.Name) || d.InCluster(addr)
}

// hostFor is what an entry would have to name: the first name that counts and that is as asked, or the address.
func (d *Decider) hostFor(q *question, is func(name string) bool) string {
	var names []string
	for _, n := range q.names {
		if d.counts(n, q.addr) && is(n.Name) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return q.addr.String()
	}
	return slices.MinFunc(names, strings.Compare)
}

// andHosts completes advice to allow a host, if the call's hosts leave it out.
func (d *Decider) andHosts(q *question, host string) string {
	covered := d.covers(byName(host))
	if addr, err := netip.ParseAddr(host); err == nil {
		covered = d.covers(byAddr(addr)) || slices.ContainsFunc(q.names, func(n LookedUp) bool {
			return d.counts(n, q.addr) && d.passes(byName(n.Name), q.port)
		})
	}
	if covered {
		return ""
	}
	return ", and add " + host + " to the call's network.hosts, or leave hosts out"
}

// orInCluster completes advice to allow an address of the cluster, if opening all of the cluster is enough.
func (d *Decider) orInCluster(q *question) string {
	wider := *d
	wider.allowInCluster = true
	if !wider.decide(*q).Allowed {
		return ""
	}
	return ", or set allowInCluster"
}
