package resolver

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

var world = map[string][]string{
	"packages.example.com.": {"198.51.100.7", "198.51.100.8", "2001:db8::7"},
	"a.wild.example.":       {"198.51.100.9"},
	"alias.example.com.":    {"edge.cdn.example."},
	"edge.cdn.example.":     {"node7.cdn.example."},
	"node7.cdn.example.":    {"203.0.113.70"},
	"circle.example.com.":   {"circle2.example.com."},
	"circle2.example.com.":  {"circle.example.com."},
	"rebound.example.com.":  {"169.254.169.254"},
	"mixed.example.com.":    {"169.254.169.254", "198.51.100.20", "10.96.0.1"},
	"rebound.wild.example.": {"10.96.0.10"},
	"service.example.com.":  {"10.96.0.10"},
	"mapped.example.com.":   {"::ffff:169.254.169.254"},
	"nat64.example.com.":    {"64:ff9b::169.254.169.254", "64:ff9b::198.51.100.7"},
	"empty.example.com.":    {},
	"private.example.org.":  {"198.51.100.99"},
	"db.corp.example.":      {"169.254.169.254"},

	"a.team.svc.cluster.local.":     {"10.96.0.20"},
	"out.team.svc.cluster.local.":   {"198.51.100.30"},
	"there.team.svc.cluster.local.": {"b.other.svc.cluster.local."},
	"far.team.svc.cluster.local.":   {"c.third.svc.cluster.local."},
	"web.team.svc.cluster.local.":   {"packages.example.com."},
	"loop.team.svc.cluster.local.":  {"service.example.com."},
	"b.other.svc.cluster.local.":    {"10.96.0.21"},
	"c.third.svc.cluster.local.":    {"10.96.0.22"},
	"c.ns.pod.cluster.local.":       {"10.96.0.23"},
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	rules := listing("packages.example.com", "*.wild.example", "alias.example.com", "circle.example.com", "rebound.example.com", "mixed.example.com",
		"service.example.com", "mapped.example.com", "nat64.example.com", "empty.example.com", "gone.example.com",
		"*.team.svc.cluster.local", "b.other.svc.cluster.local", "*.pod.cluster.local")
	for sentence, tc := range map[string]struct {
		name  string
		kind  dnsmessage.Type
		code  dnsmessage.RCode
		addrs string
		rule  string
		// silent says that no nameserver is asked.
		silent bool
	}{
		"a listed name has its IPv4 addresses":           {"packages.example.com.", dnsmessage.TypeA, 0, "198.51.100.7 198.51.100.8", "", false},
		"a listed name has its IPv6 addresses":           {"packages.example.com.", dnsmessage.TypeAAAA, 0, "2001:db8::7", "", false},
		"a name below a wildcard is listed":              {"a.wild.example.", dnsmessage.TypeA, 0, "198.51.100.9", "", false},
		"an alias leads to the addresses at its end":     {"alias.example.com.", dnsmessage.TypeA, 0, "203.0.113.70", "", false},
		"a name on the way of an alias isn't listed":     {"edge.cdn.example.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "", "edge.cdn.example isn't in the policy's network.allowed: add {host: edge.cdn.example}", true},
		"aliases in a circle fail":                       {"circle.example.com.", dnsmessage.TypeA, dnsmessage.RCodeServerFailure, "", "", false},
		"a name without addresses has no data":           {"empty.example.com.", dnsmessage.TypeA, 0, "", "", false},
		"a listed name that isn't there doesn't exist":   {"gone.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "", "", false},
		"a name that isn't listed doesn't exist":         {"private.example.org.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "", "private.example.org isn't in the policy's network.allowed: add {host: private.example.org}", true},
		"nor does it for another type":                   {"private.example.org.", dnsmessage.TypeMX, dnsmessage.RCodeNameError, "", "private.example.org isn't in the policy's network.allowed: add {host: private.example.org}", true},
		"a name that points at metadata has no data":     {"rebound.example.com.", dnsmessage.TypeA, 0, "", "169.254.169.254 (rebound.example.com) is a metadata address, which no policy allows: give the call its credentials by the environment's secrets", false},
		"a mapped metadata address isn't given out":      {"mapped.example.com.", dnsmessage.TypeAAAA, 0, "", "169.254.169.254 (mapped.example.com) is a metadata address, which no policy allows: give the call its credentials by the environment's secrets", false},
		"denied addresses are left out of an answer":     {"mixed.example.com.", dnsmessage.TypeA, 0, "198.51.100.20", "", false},
		"an embedded metadata address isn't given out":   {"nat64.example.com.", dnsmessage.TypeAAAA, 0, "64:ff9b::c633:6407", "", false},
		"a wildcard's name in the cluster has no data":   {"rebound.wild.example.", dnsmessage.TypeA, 0, "", "10.96.0.10 (rebound.wild.example) is in the cluster's network 10.96.0.0/12: add {host: rebound.wild.example} to the policy's network.allowed, or set allowInCluster", false},
		"a public name that is written out has its own":  {"service.example.com.", dnsmessage.TypeA, 0, "10.96.0.10", "", false},
		"a name of the cluster has its address":          {"a.team.svc.cluster.local.", dnsmessage.TypeA, 0, "10.96.0.20", "", false},
		"an alias to another namespace that is listed":   {"there.team.svc.cluster.local.", dnsmessage.TypeA, 0, "10.96.0.21", "", false},
		"an alias to a namespace that isn't listed":      {"far.team.svc.cluster.local.", dnsmessage.TypeA, 0, "", "10.96.0.22 (far.team.svc.cluster.local) is in the cluster's network 10.96.0.0/12, and far.team.svc.cluster.local is an alias of c.third.svc.cluster.local: add {host: c.third.svc.cluster.local} to the policy's network.allowed, or set allowInCluster", false},
		"an alias in the cluster to a public name":       {"web.team.svc.cluster.local.", dnsmessage.TypeA, 0, "", "198.51.100.7 (web.team.svc.cluster.local) isn't in the cluster's networks, and a name of the cluster allows only what is: add {host: 198.51.100.7} to the policy's network.allowed", false},
		"an alias over a public name into the cluster":   {"loop.team.svc.cluster.local.", dnsmessage.TypeA, 0, "10.96.0.10", "", false},
		"a name of the cluster with a public address":    {"out.team.svc.cluster.local.", dnsmessage.TypeA, 0, "", "198.51.100.30 (out.team.svc.cluster.local) isn't in the cluster's networks, and a name of the cluster allows only what is: add {host: 198.51.100.30} to the policy's network.allowed", false},
		"a wildcard lists no pods":                       {"c.ns.pod.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "", "c.ns.pod.cluster.local isn't in the policy's network.allowed: add {host: c.ns.pod.cluster.local}", true},
		"HTTPS of a listed name has no data":             {"packages.example.com.", 65, 0, "", "", true},
		"SVCB of a listed name has no data":              {"packages.example.com.", 64, 0, "", "", true},
		"MX of a listed name has no data":                {"packages.example.com.", dnsmessage.TypeMX, 0, "", "", true},
		"TXT of a listed name has no data":               {"packages.example.com.", dnsmessage.TypeTXT, 0, "", "", true},
		"SRV of a listed name has no data":               {"_https._tcp.a.wild.example.", dnsmessage.TypeSRV, 0, "", "", true},
		"CNAME of a listed name has no data":             {"alias.example.com.", dnsmessage.TypeCNAME, 0, "", "", true},
		"ANY isn't implemented":                          {"packages.example.com.", dnsmessage.TypeALL, dnsmessage.RCodeNotImplemented, "", "", true},
		"transfers aren't implemented":                   {"packages.example.com.", dnsmessage.TypeAXFR, dnsmessage.RCodeNotImplemented, "", "", true},
		"localhost is loopback":                          {"localhost.", dnsmessage.TypeA, 0, "127.0.0.1", "", true},
		"localhost is loopback in IPv6":                  {"A.LocalHost.", dnsmessage.TypeAAAA, 0, "::1", "", true},
		"localhost has no other data":                    {"localhost.", dnsmessage.TypeTXT, 0, "", "", true},
		"addresses aren't looked up":                     {"7.100.51.198.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError, "", "7.100.51.198.in-addr.arpa isn't in the policy's network.allowed: add {host: 7.100.51.198.in-addr.arpa}", true},
		"the case of a name doesn't matter":              {"PACKAGES.example.COM.", dnsmessage.TypeA, 0, "198.51.100.7 198.51.100.8", "", false},
		"a name with a space doesn't exist":              {"a b.wild.example.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "", "no host can have this name: use letters, digits, hyphens and underscores", true},
		"a wildcard itself doesn't exist":                {"*.wild.example.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "", "no host can have this name: use letters, digits, hyphens and underscores", true},
		"the root doesn't exist":                         {".", dnsmessage.TypeNS, dnsmessage.RCodeNameError, "", "no host can have this name: use letters, digits, hyphens and underscores", true},
		"a name of the search list isn't asked upstream": {"packages.example.com.ns.svc.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "", "", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			server := newNameserver(t, zone(world))
			r := newResolver(t, rules, server)
			got := ask(t, r, tc.name, tc.kind)
			if got.RCode != tc.code || strings.Join(addrsOf(t, got), " ") != tc.addrs || tc.rule != "" && explanation(got) != tc.rule {
				t.Errorf("got %v: %v %q", got.RCode, addrsOf(t, got), explanation(got))
			}
			if got.ID != 4711 || !got.Response || got.Authoritative || !got.RecursionAvailable || !got.RecursionDesired || got.Questions[0].Name.String() != tc.name {
				t.Errorf("the answer is another query's: %+v", got)
			}
			if silent := len(server.queries()) == 0; silent != tc.silent {
				t.Errorf("the nameserver was asked: %+v", server.queries())
			}
			checkGivenOut(t, r, addrsOf(t, got))
		})
	}
}

// checkGivenOut compares what can be reached with what was given out.
func checkGivenOut(t *testing.T, r *Resolver, given []string) {
	t.Helper()
	for _, addr := range given {
		if !canConnect(r, addr) {
			t.Errorf("%s was given out, and can't be reached", addr)
		}
	}
	for _, addr := range []string{"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "198.51.100.99", "198.51.100.7", "198.51.100.30", "10.96.0.10", "10.96.0.1", "10.96.0.20", "10.96.0.21", "10.96.0.22", "10.96.0.23"} {
		if canConnect(r, addr) && !slices.Contains(given, addr) {
			t.Errorf("%s wasn't given out, and can be reached", addr)
		}
	}
}

func TestInModeOpenAllNamesAreAsked(t *testing.T) {
	t.Parallel()
	server := newNameserver(t, zone(world))
	r := newResolver(t, openRules, server)
	if got := ask(t, r, "private.example.org.", dnsmessage.TypeA); len(addrsOf(t, got)) != 1 {
		t.Errorf("got %+v", got)
	}
	if got := ask(t, r, "rebound.example.com.", dnsmessage.TypeA); len(addrsOf(t, got)) != 0 || got.RCode != 0 {
		t.Errorf("got %+v", got)
	}
	if got := ask(t, r, "7.100.51.198.in-addr.arpa.", dnsmessage.TypePTR); got.RCode != dnsmessage.RCodeNameError {
		t.Errorf("got %+v", got)
	}
	if names, _ := r.book.names(netip.MustParseAddr("198.51.100.99")); !slices.Equal(names, []network.LookedUp{named("private.example.org")}) {
		t.Errorf("the address has the names %q", names)
	}
	list, more := r.Denials()
	if len(list) != 1 || list[0].Host != "rebound.example.com" || !strings.Contains(list[0].Rule, "is a metadata address") || more != 0 {
		t.Errorf("refused: %+v, %d", list, more)
	}
}

// A client that can add what it likes to a query could tell somebody something.
func TestOnlyTheNameAndTheTypeReachANameserver(t *testing.T) {
	t.Parallel()
	server := newNameserver(t, zone(world))
	r := newResolver(t, listing("packages.example.com"), server)
	msg := queryFor("pAcKaGeS.ExAmPlE.cOm.", dnsmessage.TypeA)
	msg.CheckingDisabled, msg.AuthenticData, msg.Authoritative = true, true, true
	msg.Additionals[0].Body = &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: 65001, Data: []byte("SECRET")}}}
	msg.Additionals = append(msg.Additionals, record("secret.example.", 1, &dnsmessage.TXTResource{TXT: []string{"SECRET"}}))
	msg.Authorities = append(msg.Authorities, record("secret.example.", 1, &dnsmessage.TXTResource{TXT: []string{"SECRET"}}))
	if got := unpacked(t, askMessage(t, r, packed(msg))); len(got.Answers) != 2 {
		t.Fatalf("got %+v", got)
	}
	sent := server.queries()[0].message
	h := dnsmessage.ResourceHeader{}
	if err := h.SetEDNS0(advertised, 0, false); err != nil {
		t.Fatal(err)
	}
	want := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: sent.ID, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: dnsmessage.MustNewName("packages.example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{}}}},
	}
	if diff := cmp.Diff(packed(want), packed(sent)); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesThatAreNoQueries(t *testing.T) {
	t.Parallel()
	question := []dnsmessage.Question{{Name: dnsmessage.MustNewName("packages.example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
	opt := queryFor("a.", dnsmessage.TypeA).Additionals[0]
	version := opt
	version.Header.TTL = 1 << 16
	named := opt
	named.Header.Name = dnsmessage.MustNewName("a.")
	whole := packed(queryFor("packages.example.com.", dnsmessage.TypeA))
	for sentence, tc := range map[string]struct {
		msg  []byte
		code int
	}{
		"nothing":                        {nil, -1},
		"half a header":                  {whole[:11], -1},
		"a response":                     {packed(dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: question}), -1},
		"a header alone":                 {packed(dnsmessage.Message{}), int(dnsmessage.RCodeFormatError)},
		"two questions":                  {packed(dnsmessage.Message{Questions: append(question, question...)}), int(dnsmessage.RCodeFormatError)},
		"half a question":                {whole[:20], int(dnsmessage.RCodeFormatError)},
		"half an OPT record":             {whole[:len(whole)-3], int(dnsmessage.RCodeFormatError)},
		"two OPT records":                {packed(dnsmessage.Message{Questions: question, Additionals: []dnsmessage.Resource{opt, opt}}), int(dnsmessage.RCodeFormatError)},
		"an OPT record with a name":      {packed(dnsmessage.Message{Questions: question, Additionals: []dnsmessage.Resource{named}}), int(dnsmessage.RCodeFormatError)},
		"EDNS of a version to come":      {packed(dnsmessage.Message{Questions: question, Additionals: []dnsmessage.Resource{version}}), int(rcodeBadVersion)},
		"an update":                      {packed(dnsmessage.Message{Header: dnsmessage.Header{OpCode: 5}, Questions: question}), int(dnsmessage.RCodeNotImplemented)},
		"another class":                  {packed(dnsmessage.Message{Questions: []dnsmessage.Question{{Name: question[0].Name, Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassCHAOS}}}), int(dnsmessage.RCodeRefused)},
		"a name that points at itself":   {append(slices.Clone(whole[:12]), 0xc0, 12, 0, 1, 0, 1), int(dnsmessage.RCodeFormatError)},
		"a name of pointers in a circle": {append(slices.Clone(whole[:12]), 0xc0, 14, 0xc0, 12, 0, 1, 0, 1), int(dnsmessage.RCodeFormatError)},
		"a name with a dot in a label":   {append(slices.Clone(whole[:12]), 3, 'a', '.', 'b', 0, 0, 1, 0, 1), int(dnsmessage.RCodeFormatError)},
		"a name that is too long":        {append(append(slices.Clone(whole[:12]), slices.Repeat(append([]byte{63}, slices.Repeat([]byte{'a'}, 63)...), 4)...), 0, 0, 1, 0, 1), int(dnsmessage.RCodeFormatError)},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := configured(t, listing("packages.example.com"), func(c *Config) { c.Dial = noDial(t) })
			raw := askMessage(t, r, tc.msg)
			if tc.code < 0 {
				if raw != nil {
					t.Errorf("it is answered: %x", raw)
				}
				return
			}
			got := unpacked(t, raw)
			code := int(got.RCode)
			for _, a := range got.Additionals {
				code |= int(a.Header.TTL>>24) << 4
			}
			if code != tc.code || !got.Response || len(got.Answers) > 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAnAnswerFitsIntoTheClientsDatagram(t *testing.T) {
	t.Parallel()
	many := map[string][]string{"packages.example.com.": nil}
	for i := range 300 {
		many["packages.example.com."] = append(many["packages.example.com."], netip.AddrFrom4([4]byte{198, 51, byte(i / 250), byte(i % 250)}).String())
	}
	server := newNameserver(t, func(asked dnsmessage.Message, network string) [][]byte {
		msg := zoneAnswer(asked, many)
		if network == "udp" {
			msg.Answers, msg.Truncated = nil, true
		}
		return [][]byte{packed(msg)}
	})
	r := newResolver(t, listing("packages.example.com"), server)
	for sentence, tc := range map[string]struct {
		edns  int
		limit int
	}{"without EDNS": {0, 512}, "with too small a size": {100, 512}, "with a size": {800, 800}, "with too large a size": {65535, maxDatagram}} {
		msg := queryFor("packages.example.com.", dnsmessage.TypeA)
		msg.Additionals[0].Header.Class = dnsmessage.Class(tc.edns)
		if tc.edns == 0 {
			msg.Additionals = nil
		}
		raw := askMessage(t, r, packed(msg))
		got := unpacked(t, raw)
		if len(raw) > tc.limit || len(raw) < tc.limit-16 || !got.Truncated || len(got.Answers) == 0 {
			t.Errorf("%s: %d bytes with %d addresses, truncated: %t", sentence, len(raw), len(got.Answers), got.Truncated)
		}
	}
	response := r.answer(t.Context(), packed(queryFor("packages.example.com.", dnsmessage.TypeA)))
	if got := unpacked(t, response.pack(maxStreamMessage)); len(got.Answers) != maxAddresses || got.Truncated {
		t.Errorf("on a stream: %d addresses, truncated: %t", len(got.Answers), got.Truncated)
	}
	for i, addr := range many["packages.example.com."] {
		if canConnect(r, addr) != (i < maxAddresses) {
			t.Errorf("%s, number %d: %t", addr, i, canConnect(r, addr))
		}
	}
}

func TestAnExplanationThatHasNoRoomIsLeftOut(t *testing.T) {
	t.Parallel()
	r := configured(t, listing(), func(c *Config) { c.Dial = noDial(t) })
	name := strings.Repeat(strings.Repeat("a", 60)+".", 4)
	msg := queryFor(name, dnsmessage.TypeA)
	msg.Additionals[0].Header.Class = 512
	raw := askMessage(t, r, packed(msg))
	got := unpacked(t, raw)
	if len(raw) > 512 || got.RCode != dnsmessage.RCodeNameError || got.Truncated || explanation(got) != "" {
		t.Errorf("%d bytes: %+v", len(raw), got)
	}
}
