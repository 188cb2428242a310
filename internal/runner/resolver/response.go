package resolver

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
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
	whole := r.write(r.addrs, true, false)
	if whole == nil && len(r.records) > 0 {
		return failure(r.query, errRecord).pack(limit)
	}
	if len(whole) <= limit {
		return whole
	}
	if r.rule != "" {
		if whole = r.write(r.addrs, false, false); len(whole) <= limit {
			return whole
		}
	}
	each := recordSize(r.query.question.Type)
	room := (limit - len(r.write(nil, false, true))) / each
	return r.write(r.addrs[:min(max(room, 0), len(r.addrs))], false, true)
}

// recordSize is what an address takes, with a pointer for its name.
func recordSize(t dnsmessage.Type) int {
	if t == dnsmessage.TypeA {
		return 12 + 4
	}
	return 12 + 16
}

func (r *response) write(addrs []netip.Addr, explained, truncated bool) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: r.query.header.ID, Response: true, OpCode: r.query.header.OpCode, Truncated: truncated,
		RecursionDesired: r.query.header.RecursionDesired, RecursionAvailable: true, RCode: r.code & 0xf,
	})
	b.EnableCompression()
	err := b.StartQuestions()
	if err == nil && r.query.hasQuestion {
		err = b.Question(r.query.question)
	}
	if err == nil {
		err = b.StartAnswers()
	}
	for _, addr := range addrs {
		if err == nil {
			err = r.writeAddr(&b, addr)
		}
	}
	for _, body := range r.records {
		if err == nil && !truncated {
			err = r.writeRecord(&b, body)
		}
	}
	if err == nil && r.query.edns {
		err = r.writeOptions(&b, explained)
	}
	if err != nil {
		return nil
	}
	msg, err := b.Finish()
	if err != nil {
		return nil
	}
	return msg
}

func (r *response) writeAddr(b *dnsmessage.Builder, addr netip.Addr) error {
	h := r.header()
	if r.query.question.Type == dnsmessage.TypeA {
		return b.AResource(h, dnsmessage.AResource{A: addr.As4()})
	}
	return b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: addr.As16()})
}

func (r *response) header() dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: r.query.question.Name, Class: dnsmessage.ClassINET, TTL: uint32(r.ttl / time.Second)}
}

// writeRecord writes a record that is no address. The asked name owns it, as it owns addresses.
func (r *response) writeRecord(b *dnsmessage.Builder, body dnsmessage.ResourceBody) error {
	switch body := body.(type) {
	case *dnsmessage.CNAMEResource:
		return b.CNAMEResource(r.header(), *body)
	case *dnsmessage.MXResource:
		return b.MXResource(r.header(), *body)
	case *dnsmessage.NSResource:
		return b.NSResource(r.header(), *body)
	case *dnsmessage.PTRResource:
		return b.PTRResource(r.header(), *body)
	case *dnsmessage.SOAResource:
		return b.SOAResource(r.header(), *body)
	case *dnsmessage.TXTResource:
		return b.TXTResource(r.header(), *body)
	case *dnsmessage.SRVResource:
		return b.SRVResource(r.header(), *body)
	case *dnsmessage.SVCBResource:
		return b.SVCBResource(r.header(), *body)
	case *dnsmessage.HTTPSResource:
		return b.HTTPSResource(r.header(), *body)
	case *dnsmessage.UnknownResource:
		return b.UnknownResource(r.header(), *body)
	default:
		return errRecord
	}
}

var errRecord = errors.New("the record is of a type that isn't passed on")

func (r *response) writeOptions(b *dnsmessage.Builder, explained bool) error {
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(advertised, r.code, false); err != nil {
		return err
	}
	var options []dnsmessage.Option
	if explained && r.rule != "" {
		data := binary.BigEndian.AppendUint16(nil, cmp.Or(r.extended, errorBlocked))
		options = []dnsmessage.Option{{Code: optionExtendedError, Data: append(data, r.rule[:min(len(r.rule), maxExtendedError)]...)}}
	}
	if err := b.StartAdditionals(); err != nil {
		return err
	}
	return b.OPTResource(h, dnsmessage.OPTResource{Options: options})
}
