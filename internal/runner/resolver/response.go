package resolver

import (
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// maxStreamMessage is what the length before a message on a stream can say.
const maxStreamMessage = 65535

// response is what a query is answered with.
type response struct {
	query *query
	code  dnsmessage.RCode
	addrs []netip.Addr
	ttl   time.Duration
	// records are what else was asked for.
	records []dnsmessage.ResourceBody
}

// pack writes the message in at most limit bytes, without the addresses that have no room. Other records are left out all
// together: the client asks for them on a stream. It is nil if it can't be written.
func (r *response) pack(limit int) []byte {
	whole := r.write(r.addrs, false)
	if whole == nil && len(r.records) > 0 {
		return failure(r.query).pack(limit)
	}
	if len(whole) <= limit {
		return whole
	}
	each := recordSize(r.query.question.Type)
	room := (limit - len(r.write(nil, true))) / each
	return r.write(r.addrs[:min(max(room, 0), len(r.addrs))], true)
}

// recordSize is what an address takes, with a pointer for its name.
func recordSize(t dnsmessage.Type) int {
	if t == dnsmessage.TypeA {
		return 12 + 4
	}
	return 12 + 16
}

func (r *response) write(addrs []netip.Addr, truncated bool) []byte {
	asked := &r.query.header
	msg := dnsmessage.Message{Header: dnsmessage.Header{
		ID: asked.ID, Response: true, OpCode: asked.OpCode, Truncated: truncated, RecursionDesired: asked.RecursionDesired, RecursionAvailable: true,
		RCode: r.code & 0xf,
	}}
	if r.query.hasQuestion {
		msg.Questions = []dnsmessage.Question{r.query.question}
	}
	add := func(body dnsmessage.ResourceBody) {
		// The asked name owns all.
		h := dnsmessage.ResourceHeader{Name: r.query.question.Name, Class: dnsmessage.ClassINET, TTL: uint32(r.ttl / time.Second)}
		msg.Answers = append(msg.Answers, dnsmessage.Resource{Header: h, Body: body})
	}
	for _, addr := range addrs {
		if r.query.question.Type == dnsmessage.TypeA {
			add(&dnsmessage.AResource{A: addr.As4()})
		} else {
			add(&dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	if !truncated {
		for _, body := range r.records {
			add(body)
		}
	}
	if r.query.edns {
		h := dnsmessage.ResourceHeader{}
		if h.SetEDNS0(maxDatagram, r.code, false) != nil {
			return nil
		}
		msg.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	raw, err := msg.Pack()
	if err != nil {
		return nil
	}
	return raw
}
