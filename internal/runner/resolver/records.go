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

// records are an answer section: aliases, and what was asked for, by their owners.
type records struct {
	aliases map[string]alias
	asked   map[string][]dnsmessage.Resource
}

type alias struct {
	target string
	ttl    time.Duration
}

func (r *records) read(p *dnsmessage.Parser, kind dnsmessage.Type) error {
	r.aliases, r.asked = map[string]alias{}, map[string][]dnsmessage.Resource{}
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
	owner := canonical(h.Name)
	switch {
	case h.Class == dnsmessage.ClassINET && h.Type == kind:
		record, err := p.Answer()
		if err == nil {
			r.asked[owner] = append(r.asked[owner], record)
		}
		return err
	case h.Class == dnsmessage.ClassINET && h.Type == dnsmessage.TypeCNAME:
		body, err := p.CNAMEResource()
		if _, twice := r.aliases[owner]; err == nil && !twice {
			r.aliases[owner] = alias{canonical(body.CNAME), timeToLive(h.TTL)}
		}
		return err
	default:
		return p.SkipAnswer()
	}
}

// timeToLive reads a time to live as RFC 2181 says: one with the highest bit is zero.
func timeToLive(seconds uint32) time.Duration {
	if seconds > math.MaxInt32 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// follow finds what a chain of aliases leads to from a name, and the shortest time to live on the way.
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
	for _, record := range r.asked[name] {
		found.ttl = min(found.ttl, timeToLive(record.Header.TTL))
		var addr netip.Addr
		switch body := record.Body.(type) {
		case *dnsmessage.AResource:
			addr = netip.AddrFrom4(body.A)
		case *dnsmessage.AAAAResource:
			addr = netip.AddrFrom16(body.AAAA)
		default:
			found.records = append(found.records, body)
			continue
		}
		if !slices.Contains(found.addrs, addr) {
			found.addrs = append(found.addrs, addr)
		}
	}
}

var errChain = errors.New("the chain of aliases is too long, or a circle")
