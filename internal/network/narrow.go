package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Narrow returns the Rules with a call's hosts, which must each be covered by what the Rules allow. No hosts narrow nothing.
// The ports stay those of the Rules. Surroundings needn't be known yet: Decide refuses the hosts that they turn out to deny. The error
// joins one *Error for each host that is wrong, up to a bound.
func Narrow(r *Rules, hosts []string) (*Rules, error) {
	var p problems
	d := compile(r, &p)
	if err := p.err(); err != nil {
		return nil, err
	}
	narrow := *r
	if len(hosts) == 0 {
		return &narrow, nil
	}
	var canonical []string
	for _, e := range compileHosts(hosts, d.checkCovered, &p) {
		canonical = append(canonical, e.String())
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	slices.Sort(canonical)
	narrow.Hosts = slices.Compact(canonical)
	return &narrow, nil
}

// checkCovered says which rule a host goes beyond.
func (d *Decider) checkCovered(h host) error {
	if d.mode == None {
		return errors.New("the policy's network.mode is None, so no host can be reached: leave hosts out")
	}
	if h.prefix.IsValid() {
		if err := d.checkNotDenied(h.prefix); err != nil {
			return err
		}
	}
	if d.mode == Listed && !d.allowed.matches(h, anyPort) {
		return fmt.Errorf("%s isn't covered by the policy's network.allowed: add {host: %s} there, or leave it out", h, h)
	}
	if !d.covers(h) {
		return fmt.Errorf("%s isn't covered by the hosts that are left already: leave it out", h)
	}
	return nil
}

// checkNotDenied refuses a prefix of which nothing can be reached. One that is denied in part stays: Decide refuses that part.
func (d *Decider) checkNotDenied(prefix netip.Prefix) error {
	q := ask(prefix.Addr(), nil)
	for i := range d.denied {
		if !prefixContains(d.denied[i].prefix, prefix) {
			continue
		}
		return errors.New(q.messageDenied(&d.denied[i], q.addr))
	}
	if network := containing(d.cluster, prefix); network.IsValid() && !d.allowInCluster && !d.allowed.overlap(prefix) {
		return errors.New(d.messageInCluster(&q, network, q.addr))
	}
	return nil
}

func (h *hosts) overlap(prefix netip.Prefix) bool {
	return slices.ContainsFunc(h.list, func(e *entry) bool { return e.prefix.Overlaps(prefix) })
}
