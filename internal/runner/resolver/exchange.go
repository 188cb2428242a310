package resolver

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// exchange is a question to a nameserver, and how it is asked.
type exchange struct {
	name string
	kind dnsmessage.Type
	edns bool
	id   uint16
}

// found is what a nameserver answered.
type found struct {
	code      dnsmessage.RCode
	truncated bool
	addrs     []netip.Addr
	ttl       time.Duration
	// records are the answer to a question for something else than addresses.
	records []dnsmessage.ResourceBody
	// target is the last name of the chain of aliases, whose addresses or records they are.
	target string
}

func (f *found) isEmpty() bool { return len(f.addrs)+len(f.records) == 0 }

// refusesEDNS says that an answer is that of a nameserver which doesn't know EDNS.
func (f *found) refusesEDNS() bool {
	return f.code == dnsmessage.RCodeFormatError || f.code == dnsmessage.RCodeNotImplemented
}

// newQuery writes a query with an id that nobody can guess.
func (e *exchange) newQuery() ([]byte, error) {
	var id [2]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	e.id = binary.BigEndian.Uint16(id[:])
	name, err := dnsmessage.NewName(e.name + ".")
	if err != nil {
		return nil, err
	}
	msg := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: e.id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: e.kind, Class: dnsmessage.ClassINET}},
	}
	if e.edns {
		msg.Additionals = ednsOf(dnsmessage.RCodeSuccess, nil)
	}
	return msg.Pack()
}

// errStray says that a message doesn't answer the question.
var errStray = errors.New("the message doesn't answer the question")

// readAnswer reads the answer to the query that was made last.
func (e *exchange) readAnswer(msg []byte) (*found, error) {
	var p dnsmessage.Parser
	header, err := p.Start(msg)
	if err != nil || !header.Response || header.ID != e.id || header.OpCode != 0 {
		return nil, errStray
	}
	got := &found{code: header.RCode, truncated: header.Truncated}
	if got.refusesEDNS() && binary.BigEndian.Uint16(msg[4:]) == 0 {
		// Some repeat no question that they couldn't read. Nothing else of such an answer counts.
		return got, nil
	}
	if !e.isAnswered(&p, msg) {
		return nil, errStray
	}
	if got.code != dnsmessage.RCodeSuccess {
		return got, nil
	}
	var records records
	if err := records.read(&p, e.kind); err != nil && !got.truncated {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	err = records.follow(e.name, got)
	return got, err
}

// isAnswered says whether a message repeats the question.
func (e *exchange) isAnswered(p *dnsmessage.Parser, msg []byte) bool {
	q, err := p.Question()
	if err != nil || binary.BigEndian.Uint16(msg[4:]) != 1 || p.SkipAllQuestions() != nil {
		return false
	}
	return canonical(q.Name) == e.name && q.Type == e.kind && q.Class == dnsmessage.ClassINET
}

func canonical(name dnsmessage.Name) string {
	return strings.ToLower(strings.TrimSuffix(name.String(), "."))
}
