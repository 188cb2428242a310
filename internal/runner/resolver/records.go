package resolver

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxRecords bounds the answer section that is read, maxChain how many aliases lead to what was asked for.
	maxRecords = 1024
	maxChain   = 16
)

// records are an answer section: aliases, and addresses or what else was asked for, by their owners.
type records struct {
	aliases map[string]alias
	addrs   map[string][]address
	others  map[string][]other
}

// other is a record that is no address.
type other struct {
	body dnsmessage.ResourceBody
	ttl  time.Duration
}

type alias struct {
	target string
	ttl    time.Duration
}

type address struct {
	addr netip.Addr
	ttl  time.Duration
}

func (r *records) read(p *dnsmessage.Parser, kind dnsmessage.Type) error {
	r.aliases, r.addrs, r.others = map[string]alias{}, map[string][]address{}, map[string][]other{}
	for range maxRecords {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.readOne(p, &h, kind); err != nil {
			return err
		}
	}
	return nil
}

func (r *records) readOne(p *dnsmessage.Parser, h *dnsmessage.ResourceHeader, kind dnsmessage.Type) error {
	owner, ttl := canonical(h.Name), timeToLive(h.TTL)
	switch {
	case h.Class != dnsmessage.ClassINET:
		return p.SkipAnswer()
	case h.Type == dnsmessage.TypeCNAME && kind != dnsmessage.TypeCNAME:
		body, err := p.CNAMEResource()
		if _, twice := r.aliases[owner]; err == nil && !twice {
			r.aliases[owner] = alias{canonical(body.CNAME), ttl}
		}
		return err
	case h.Type != kind:
		return p.SkipAnswer()
	case kind == dnsmessage.TypeA:
		body, err := p.AResource()
		if err == nil {
			r.addrs[owner] = append(r.addrs[owner], address{netip.AddrFrom4(body.A), ttl})
		}
		return err
	case kind == dnsmessage.TypeAAAA:
		body, err := p.AAAAResource()
		if err == nil {
			r.addrs[owner] = append(r.addrs[owner], address{netip.AddrFrom16(body.AAAA), ttl})
		}
		return err
	default:
		whole, err := p.Answer()
		if err == nil {
			r.others[owner] = append(r.others[owner], other{whole.Body, ttl})
		}
		return err
	}
}

// timeToLive reads a time to live as RFC 2181 says: one with the highest bit is zero.
func timeToLive(seconds uint32) time.Duration {
	if seconds > math.MaxInt32 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// follow finds the addresses that a chain of aliases leads to from a name, and the shortest time to live on the way.
func (r *records) follow(name string, found *found) error {
	found.ttl = maxTTL
	for range maxChain {
		next, ok := r.aliases[name]
		if !ok {
			r.take(name, found)
			return nil
		}
		name, found.ttl = next.target, min(found.ttl, next.ttl)
	}
	return errChain
}

func (r *records) take(name string, found *found) {
	found.target = name
	for _, a := range r.addrs[name] {
		found.ttl = min(found.ttl, a.ttl)
		if !slices.Contains(found.addrs, a.addr) {
			found.addrs = append(found.addrs, a.addr)
		}
	}
	for _, o := range r.others[name] {
		found.ttl = min(found.ttl, o.ttl)
		found.records = append(found.records, o.body)
	}
}

var errChain = errors.New("the chain of aliases is too long, or a circle")
