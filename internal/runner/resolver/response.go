package resolver

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"sort"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxStreamMessage is what the length before a message on a stream can say.
	maxStreamMessage = 65535
	// advertised is the size of datagrams that the resolver takes.
	advertised = 1232

	// Of RFC 8914: the option, and codes.
	optionExtendedError = 15
	errorBlocked        = 15
	errorNoneReachable  = 22
	errorNetwork        = 23
	maxExtendedError    = 256
)

// response is what a query is answered with.
type response struct {
	query *query
	code  dnsmessage.RCode
	addrs []netip.Addr
	ttl   time.Duration
	// records are what else was asked for.
	records []dnsmessage.ResourceBody
	// rule says why nothing was found, and extended what kind of reason it is, where it isn't the call's rules.
	rule     string
	extended uint16
}

// pack writes the message in at most limit bytes, without the addresses that have no room. Other records are left out all
// together: the client asks for them on a stream. It is nil if it can't be written.
func (r *response) pack(limit int) []byte {
	msg := r.write(r.addrs, true, false)
	if msg == nil && len(r.records) > 0 {
		return failure(r.query, errRecord).pack(limit)
	}
	if len(msg) > limit && r.rule != "" {
		msg = r.write(r.addrs, false, false)
	}
	if len(msg) > limit {
		fit := sort.Search(len(r.addrs), func(n int) bool { return len(r.write(r.addrs[:n+1], false, true)) > limit })
		msg = r.write(r.addrs[:fit], false, true)
	}
	return msg
}

func (r *response) write(addrs []netip.Addr, explained, truncated bool) []byte {
	msg := dnsmessage.Message{Header: dnsmessage.Header{
		ID: r.query.header.ID, Response: true, OpCode: r.query.header.OpCode, Truncated: truncated,
		RecursionDesired: r.query.header.RecursionDesired, RecursionAvailable: true, RCode: r.code & 0xf,
	}}
	if r.query.hasQuestion {
		msg.Questions = []dnsmessage.Question{r.query.question}
	}
	add := func(body dnsmessage.ResourceBody) {
		// The asked name owns all records.
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
		msg.Additionals = ednsOf(r.code, r.options(explained))
	}
	raw, err := msg.Pack()
	if err != nil {
		return nil
	}
	return raw
}

var errRecord = errors.New("a record can't be written")

func (r *response) options(explained bool) []dnsmessage.Option {
	if !explained || r.rule == "" {
		return nil
	}
	data := binary.BigEndian.AppendUint16(nil, cmp.Or(r.extended, errorBlocked))
	return []dnsmessage.Option{{Code: optionExtendedError, Data: append(data, r.rule[:min(len(r.rule), maxExtendedError)]...)}}
}

// ednsOf is the section that speaks EDNS.
func ednsOf(code dnsmessage.RCode, options []dnsmessage.Option) []dnsmessage.Resource {
	var h dnsmessage.ResourceHeader
	_ = h.SetEDNS0(advertised, code, false) // the name that it makes is valid
	return []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{Options: options}}}
}
