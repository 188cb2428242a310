package resolver

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

// MaxQuery bounds a client's message, by a datagram or on a stream. It is more than the longest name, an OPT record and its
// padding take.
const MaxQuery = 4096

const (
	headerSize = 12
	// minDatagram is what every client takes in a datagram, maxDatagram the most that it gets.
	minDatagram = 512
	maxDatagram = 1232
)

// Types that dnsmessage has no names for.
const (
	typeMD    dnsmessage.Type = 3
	typeMF    dnsmessage.Type = 4
	typeMB    dnsmessage.Type = 7
	typeMG    dnsmessage.Type = 8
	typeMR    dnsmessage.Type = 9
	typeRP    dnsmessage.Type = 17
	typeAFSDB dnsmessage.Type = 18
	typeRT    dnsmessage.Type = 21
	typeSIG   dnsmessage.Type = 24
	typePX    dnsmessage.Type = 26
	typeNXT   dnsmessage.Type = 30
	typeNAPTR dnsmessage.Type = 35
	typeIXFR  dnsmessage.Type = 251
	typeMAILB dnsmessage.Type = 253
	typeMAILA dnsmessage.Type = 254
)

// rcodeBadVersion is an extended code: only its lower four bits stand in the header.
const rcodeBadVersion dnsmessage.RCode = 16

// query is a client's message.
type query struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	// hasQuestion says that the question could be read, so that a response repeats it.
	hasQuestion bool
	// name is the asked name in canonical form; empty if no host can have it.
	name string
	// edns says that the client speaks EDNS, datagram what it takes in one.
	edns     bool
	datagram int
}

// errNoResponse says that a message must not be answered: it can't be a query, or an answer might be answered in turn.
var errNoResponse = errors.New("the message isn't a query")

// parseQuery reads a client's message. The code says what is wrong with it.
func parseQuery(msg []byte) (*query, dnsmessage.RCode, error) {
	var p dnsmessage.Parser
	header, err := p.Start(msg)
	if err != nil || header.Response {
		return nil, 0, errNoResponse
	}
	q := &query{header: header, datagram: minDatagram}
	if header.OpCode != 0 {
		return q, dnsmessage.RCodeNotImplemented, nil
	}
	if len(msg) > MaxQuery || binary.BigEndian.Uint16(msg[4:]) != 1 {
		return q, dnsmessage.RCodeFormatError, nil
	}
	if q.question, err = p.Question(); err != nil {
		return q, dnsmessage.RCodeFormatError, nil
	}
	q.hasQuestion = true
	if name, err := network.Name(q.question.Name.String()); err == nil {
		q.name = name
	}
	return q, q.readRest(&p), nil
}

// readRest looks for the OPT record. What else stands behind the question has no meaning in a query.
func (q *query) readRest(p *dnsmessage.Parser) dnsmessage.RCode {
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return dnsmessage.RCodeFormatError
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return dnsmessage.RCodeSuccess
		}
		if err != nil {
			return dnsmessage.RCodeFormatError
		}
		if h.Type == dnsmessage.TypeOPT {
			if q.edns || h.Name.String() != "." {
				return dnsmessage.RCodeFormatError
			}
			q.edns = true
			q.datagram = min(max(int(h.Class), minDatagram), maxDatagram)
			if version := byte(h.TTL >> 16); version != 0 {
				return rcodeBadVersion
			}
		}
		if p.SkipAdditional() != nil {
			return dnsmessage.RCodeFormatError
		}
	}
}

// unsupported is the code for what is never answered.
func (q *query) unsupported() (dnsmessage.RCode, bool) {
	switch q.question.Type {
	case dnsmessage.TypeALL, dnsmessage.TypeAXFR, typeIXFR, typeMAILA, typeMAILB, dnsmessage.TypeOPT:
		return dnsmessage.RCodeNotImplemented, true
	}
	return dnsmessage.RCodeRefused, q.question.Class != dnsmessage.ClassINET
}

func (q *query) isAddress() bool {
	return q.question.Type == dnsmessage.TypeA || q.question.Type == dnsmessage.TypeAAAA
}

// isPassedOn says whether records of the asked type may be passed on: they are data, and hold no names that a nameserver may
// have shortened in a way that only who knows the type can read (RFC 3597, section 4). Those that the library knows are
// read and written anew.
func (q *query) isPassedOn() bool {
	switch t := q.question.Type; t {
	case 0, typeMD, typeMF, typeMB, typeMG, typeMR, dnsmessage.TypeMINFO, typeRP, typeAFSDB, typeRT, typeSIG, typePX, typeNXT, typeNAPTR:
		return false
	default:
		const firstMeta, lastMeta = 128, 255
		return t < firstMeta || t > lastMeta
	}
}

func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

func isReverse(name string) bool {
	return strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa")
}
