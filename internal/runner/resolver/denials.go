package resolver

import (
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

const (
	// maxDenials bounds a report.
	maxDenials = 20
	// maxCounted bounds the names that are counted, with those that a search list made, and maxAnswered those that were
	// answered.
	maxCounted  = 512
	maxAnswered = 1024
)

// Denial is a name whose lookup was refused.
type Denial struct {
	Host string
	// Count is how many times it was looked up. A client that asks for IPv4 and IPv6 looks it up once.
	Count int64
	Rule  string
}

// denials counts what was refused, and leaves out what only a search list asked for.
type denials struct {
	// search is the search list, in the canonical form of names.
	search []string

	mu    sync.Mutex
	names map[string]*counted
	order []*counted
	// more counts the lookups of names for which there was no room.
	more int64
	// answered are names that weren't refused.
	answered map[string]bool
}

type counted struct {
	Denial
	// queries counts them by family.
	queries [families]int64
	// dropped says that the name may be looked up, and an address of it was refused.
	dropped bool
}

// add counts the refusal of a name, or of an address that it has.
func (d *denials) add(name string, t dnsmessage.Type, v network.Verdict, dropped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.names[name]
	if c == nil && len(d.order) == maxCounted {
		d.more++
		return
	}
	if c == nil {
		c = &counted{Denial: Denial{Host: name, Rule: v.Rule}, dropped: dropped}
		if d.names == nil {
			d.names = map[string]*counted{}
		}
		d.names[name], d.order = c, append(d.order, c)
	}
	family := familyOf(t)
	c.queries[family]++
	c.Count = max(c.Count, c.queries[family])
}

// addAnswered notes a name that may be looked up.
func (d *denials) addAnswered(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.answered) == maxAnswered {
		return
	}
	if d.answered == nil {
		d.answered = map[string]bool{}
	}
	d.answered[name] = true
}

// report returns the first names, and how many more there were.
func (d *denials) report() (list []Denial, more int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	more = d.more
	for _, c := range d.order {
		switch {
		case !c.dropped && d.isFromSearch(c.Host):
		case len(list) == maxDenials:
			more++
		default:
			list = append(list, c.Denial)
		}
	}
	return list, more
}

// isFromSearch says that a name is another one with a domain of the search list, and that the client asked for the other
// name: alone, or with another domain that led somewhere.
func (d *denials) isFromSearch(name string) bool {
	return slices.ContainsFunc(d.search, func(domain string) bool {
		meant, ok := strings.CutSuffix(name, "."+domain)
		if !ok {
			return false
		}
		return d.names[meant] != nil || d.answered[meant] ||
			slices.ContainsFunc(d.search, func(other string) bool { return d.answered[meant+"."+other] })
	})
}
