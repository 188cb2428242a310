package resolver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

const typeCAA dnsmessage.Type = 257

// othersOf are records of several types, by the names of their owners.
var othersOf = map[string][]dnsmessage.ResourceBody{
	"example.com.": {
		&dnsmessage.MXResource{Pref: 10, MX: dnsmessage.MustNewName("mail.example.com.")},
		&dnsmessage.MXResource{Pref: 20, MX: dnsmessage.MustNewName("mail.example.org.")},
		&dnsmessage.TXTResource{TXT: []string{"v=spf1 -all", "second"}},
		&dnsmessage.NSResource{NS: dnsmessage.MustNewName("ns.example.com.")},
		&dnsmessage.SOAResource{NS: dnsmessage.MustNewName("ns.example.com."), MBox: dnsmessage.MustNewName("admin.example.com."), Serial: 7},
		&dnsmessage.HTTPSResource{SVCBResource: dnsmessage.SVCBResource{
			Priority: 1, Target: dnsmessage.MustNewName("."), Params: []dnsmessage.SVCParam{{Key: dnsmessage.SVCParamIPv4Hint, Value: []byte{203, 0, 113, 66}}},
		}},
		&dnsmessage.UnknownResource{Type: typeCAA, Data: []byte("\x00\x05issueca.example")},
		&dnsmessage.UnknownResource{Type: typeNAPTR, Data: []byte{1, 2, 3}},
	},
	"_https._tcp.example.com.": {&dnsmessage.SRVResource{Priority: 1, Port: 443, Target: dnsmessage.MustNewName("a.example.com.")}},
	"alias.example.com.":       {&dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("example.com.")}},
	"large.example.com.":       large(),
}

func large() (list []dnsmessage.ResourceBody) {
	for i := range 2 * maxAddresses {
		list = append(list, &dnsmessage.TXTResource{TXT: []string{fmt.Sprintf("%03d", i) + strings.Repeat("x", 200)}})
	}
	return list
}

func typeOf(body dnsmessage.ResourceBody) dnsmessage.Type {
	switch body := body.(type) {
	case *dnsmessage.CNAMEResource:
		return dnsmessage.TypeCNAME
	case *dnsmessage.MXResource:
		return dnsmessage.TypeMX
	case *dnsmessage.TXTResource:
		return dnsmessage.TypeTXT
	case *dnsmessage.NSResource:
		return dnsmessage.TypeNS
	case *dnsmessage.SOAResource:
		return dnsmessage.TypeSOA
	case *dnsmessage.SRVResource:
		return dnsmessage.TypeSRV
	case *dnsmessage.HTTPSResource:
		return dnsmessage.TypeHTTPS
	default:
		return body.(*dnsmessage.UnknownResource).Type
	}
}

// serveOthers answers with all records of a name, whatever is asked, and of the name that it is an alias of, and adds some
// that nobody asked for. In a datagram there is room for few.
func serveOthers(asked dnsmessage.Message, network string) [][]byte {
	msg := replyTo(asked)
	add := func(name string) {
		for _, body := range othersOf[name] {
			r := record(name, 300, body)
			r.Header.Type = typeOf(body)
			msg.Answers = append(msg.Answers, r)
		}
	}
	name := asked.Questions[0].Name.String()
	add(name)
	if name == "alias.example.com." {
		add("example.com.")
	}
	msg.Answers = append(msg.Answers, record("evil.example.", 300, &dnsmessage.TXTResource{TXT: []string{"evil"}}))
	msg.Additionals = []dnsmessage.Resource{record(name, 300, &dnsmessage.TXTResource{TXT: []string{"evil"}})}
	if raw := packed(msg); network == "tcp" || len(raw) <= advertised {
		return [][]byte{raw}
	}
	return [][]byte{truncated(asked)}
}

func TestInModeOpenRecordsArePassedOn(t *testing.T) {
	t.Parallel()
	server := newNameserver(t, serveOthers)
	r := newResolver(t, openRules, server)
	for sentence, tc := range map[string]struct {
		name  string
		kind  dnsmessage.Type
		count int
		rule  string
	}{
		"MX":                        {"example.com.", dnsmessage.TypeMX, 2, ""},
		"TXT":                       {"example.com.", dnsmessage.TypeTXT, 1, ""},
		"NS":                        {"example.com.", dnsmessage.TypeNS, 1, ""},
		"SOA":                       {"example.com.", dnsmessage.TypeSOA, 1, ""},
		"HTTPS":                     {"example.com.", dnsmessage.TypeHTTPS, 1, ""},
		"CAA":                       {"example.com.", typeCAA, 1, ""},
		"SRV":                       {"_https._tcp.example.com.", dnsmessage.TypeSRV, 1, ""},
		"CNAME":                     {"alias.example.com.", dnsmessage.TypeCNAME, 1, ""},
		"MX of an alias":            {"alias.example.com.", dnsmessage.TypeMX, 2, ""},
		"a type that isn't there":   {"example.com.", dnsmessage.TypeSVCB, 0, ""},
		"a type with hidden names":  {"example.com.", typeNAPTR, 0, "records of this type aren't looked up"},
		"a type that is no data":    {"example.com.", 250, 0, "records of this type aren't looked up"},
		"no type":                   {"example.com.", 0, 0, "records of this type aren't looked up"},
		"a name of the reverse way": {"7.100.51.198.in-addr.arpa.", dnsmessage.TypePTR, 0, "addresses aren't looked up"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got := ask(t, r, tc.name, tc.kind)
			source := tc.name
			if source == "alias.example.com." && tc.kind != dnsmessage.TypeCNAME {
				source = "example.com."
			}
			var want, bodies []dnsmessage.ResourceBody
			for _, body := range othersOf[source] {
				if typeOf(body) == tc.kind && tc.count > 0 {
					want = append(want, body)
				}
			}
			for _, a := range got.Answers {
				bodies = append(bodies, a.Body)
				if a.Header.Name.String() != tc.name || a.Header.Type != tc.kind || a.Header.TTL != 300 {
					t.Errorf("got %+v", a.Header)
				}
			}
			if diff := cmp.Diff(want, bodies); diff != "" || len(bodies) != tc.count || explanation(got) != tc.rule || len(got.Authorities) > 0 {
				t.Errorf("%q %s", explanation(got), diff)
			}
		})
	}
}

func TestRecordsOtherThanAddressesNeedModeOpen(t *testing.T) {
	t.Parallel()
	narrowed := *openRules
	narrowed.Hosts = []string{"example.com"}
	for sentence, rules := range map[string]*network.Rules{"mode Listed": listing("example.com"), "mode Open with hosts": &narrowed} {
		r := configured(t, rules, func(c *Config) { c.Dial = noDial(t) })
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeMX, dnsmessage.TypeHTTPS, dnsmessage.TypeCNAME, 0} {
			got := ask(t, r, "example.com.", kind)
			const want = "only addresses are looked up: other records need the policy's network.mode Open, and no hosts of the call"
			if got.RCode != 0 || len(got.Answers) > 0 || explanation(got) != want || extendedCode(got) != errorBlocked {
				t.Errorf("%s, %v: %v %q", sentence, kind, got, explanation(got))
			}
		}
		if list, _ := r.Denials(); list != nil {
			t.Errorf("%s: refused: %+v", sentence, list)
		}
	}
}

func TestARecordThatCanNotBeWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	q, _, err := parseQuery(packed(queryFor("example.com.", dnsmessage.TypeTXT)))
	if err != nil {
		t.Fatal(err)
	}
	broken := &response{query: q, records: []dnsmessage.ResourceBody{&dnsmessage.TXTResource{TXT: []string{strings.Repeat("x", 256)}}}}
	if got := unpacked(t, broken.pack(maxDatagram)); got.RCode != dnsmessage.RCodeServerFailure || len(got.Answers) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestRecordsThatHaveNoRoomAreAskedForOnAStream(t *testing.T) {
	t.Parallel()
	r := newResolver(t, openRules, newNameserver(t, serveOthers))
	query := packed(queryFor("large.example.com.", dnsmessage.TypeTXT))
	raw := askMessage(t, r, query)
	if got := unpacked(t, raw); len(raw) > maxDatagram || !got.Truncated || len(got.Answers) > 0 {
		t.Errorf("%d bytes, %d records, truncated: %t", len(raw), len(got.Answers), got.Truncated)
	}
	whole := unpacked(t, r.answer(t.Context(), query).pack(maxStreamMessage))
	if len(whole.Answers) != maxAddresses || whole.Truncated {
		t.Errorf("on a stream: %d records, truncated: %t", len(whole.Answers), whole.Truncated)
	}
}

// FuzzRecords has any message read as a nameserver's answer to a question for records, and passed on.
func FuzzRecords(f *testing.F) {
	for name := range othersOf {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeMX, dnsmessage.TypeTXT, dnsmessage.TypeHTTPS, dnsmessage.TypeCNAME, typeCAA} {
			f.Add(serveOthers(queryFor(name, kind), "tcp")[0][2:], uint16(kind))
		}
	}
	f.Fuzz(func(t *testing.T, rest []byte, kind uint16) {
		query, _, err := parseQuery(packed(queryFor("example.com.", dnsmessage.Type(kind))))
		if err != nil || query.isAddress() || !query.isPassedOn() {
			return
		}
		e := &exchange{name: "example.com", kind: dnsmessage.Type(kind), id: 7}
		found, err := e.readAnswer(append([]byte{0, 7}, rest...))
		if err != nil {
			return
		}
		for _, limit := range []int{minDatagram, maxStreamMessage} {
			raw := (&response{query: query, records: found.records, ttl: found.ttl}).pack(limit)
			got := unpacked(t, raw)
			if len(raw) > limit || len(got.Answers) > len(found.records) {
				t.Fatalf("%d bytes with %d records of %d", len(raw), len(got.Answers), len(found.records))
			}
			for _, a := range got.Answers {
				if a.Header.Type != e.kind || a.Header.Name.String() != "example.com." {
					t.Fatalf("got %+v", a)
				}
			}
		}
	})
}
