package resolver

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestRefusedLookupsAreCounted(t *testing.T) {
	t.Parallel()
	search := []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example."}
	// expanded are the names that a client asks for a name with fewer than five dots, in its order.
	expanded := func(name string) (all []string) {
		for _, domain := range search {
			all = append(all, name+strings.TrimSuffix(domain, ".")+".")
		}
		return append(all, name)
	}
	for sentence, tc := range map[string]struct {
		asked []string
		want  string
	}{
		"a listed name isn't refused":                                                 {expanded("packages.example.com."), ""},
		"a name that isn't listed counts once":                                        {expanded("private.example.org."), "private.example.org 1"},
		"so does a name alone":                                                        {expanded("redis."), "redis 1"},
		"a name of the cluster counts under itself":                                   {expanded("redis.ns.svc.cluster.local."), "redis.ns.svc.cluster.local 1"},
		"one that is asked without the search list too":                               {[]string{"redis.ns.svc.cluster.local."}, "redis.ns.svc.cluster.local 1"},
		"a name that a later domain completes isn't refused":                          {expanded("api.other.")[:2], ""},
		"one that no domain completes, and isn't asked alone":                         {expanded("db.other.")[:2], "db.other.ns.svc.cluster.local 1 db.other.svc.cluster.local 1"},
		"each lookup counts":                                                          {append(expanded("private.example.org."), expanded("private.example.org.")...), "private.example.org 2"},
		"an address that is refused counts, though the name has a domain of the list": {[]string{"db.corp.example.", "db."}, "db.corp.example 1 db 1"},
		"reverse lookups don't count":                                                 {[]string{"7.100.51.198.in-addr.arpa.", "7.0.0.0.ip6.arpa."}, ""},
		"names that no host can have are quoted":                                      {[]string{"a\x1b[2J.example.", "a b."}, `"a\x1b[2J.example." 1 "a b." 1`},
		"upper and lower case count together":                                         {[]string{"PRIVATE.example.org.", "private.EXAMPLE.org."}, "private.example.org 2"},
		"a domain of the search list is no name with itself":                          {[]string{"cluster.local.", "svc.cluster.local."}, "cluster.local 1 svc.cluster.local 1"},
		"a name that only ends like a domain of the list does count":                  {[]string{"evilcluster.local.", "evil."}, "evilcluster.local 1 evil 1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := newNameserver(t, zone(world))
			r := configured(t, listing("packages.example.com", "api.other.svc.cluster.local", "db.corp.example"), func(c *Config) {
				c.Search, c.Nameservers = search, append(c.Nameservers, s.addr)
			})
			for _, name := range tc.asked {
				ask(t, r, name, dnsmessage.TypeA)
				ask(t, r, name, dnsmessage.TypeAAAA)
			}
			if got := reported(r); got != tc.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestAShortNameIsExplainedByTheSearchList(t *testing.T) {
	t.Parallel()
	const listIt = "redis is redis.ns.svc.cluster.local by the search list: redis.ns.svc.cluster.local isn't in the policy's network.allowed: add {host: redis.ns.svc.cluster.local}"
	for sentence, tc := range map[string]struct {
		search []string
		listed string
		name   string
		want   string
	}{
		"the first domain completes it":         {[]string{"ns.svc.cluster.local", "svc.cluster.local"}, "a.test", "redis.", listIt},
		"a domain with a dot at its end does":   {[]string{"ns.svc.cluster.local."}, "a.test", "redis.", listIt},
		"without a search list it is whole":     {nil, "a.test", "redis.", "redis isn't in the policy's network.allowed: add {host: redis}"},
		"a name with dots is whole":             {[]string{"ns.svc.cluster.local"}, "a.test", "db.other.", "db.other isn't in the policy's network.allowed: add {host: db.other}"},
		"where the completed one is listed too": {[]string{"ns.svc.cluster.local"}, "redis.ns.svc.cluster.local", "redis.", "redis isn't in the policy's network.allowed: add {host: redis}"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := configured(t, listing(tc.listed), func(c *Config) { c.Search, c.Dial = tc.search, noDial(t) })
			if got := explanation(ask(t, r, tc.name, dnsmessage.TypeA)); got != tc.want {
				t.Errorf("the client is told %q", got)
			}
			list, _ := r.Denials()
			if len(list) != 1 || list[0].Host != strings.TrimSuffix(tc.name, ".") || list[0].Rule != tc.want {
				t.Errorf("refused: %+v", list)
			}
		})
	}
}

func reported(r *Resolver) string {
	var all []string
	list, more := r.Denials()
	for _, d := range list {
		all = append(all, fmt.Sprintf("%s %d", d.Host, d.Count))
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("and %d", more))
	}
	return strings.Join(all, " ")
}

func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	r := configured(t, listing("*.listed.example"), func(c *Config) { c.Dial = noDial(t) })
	for i := range 2 * maxCounted {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeA} {
			ask(t, r, fmt.Sprintf("n%d.example.", i), kind)
		}
		ask(t, r, fmt.Sprintf("n%d.listed.example.", i), dnsmessage.TypeMX)
	}
	list, more := r.Denials()
	if len(list) != maxDenials || more != 3*maxCounted+maxCounted-maxDenials || list[0].Host != "n0.example" || list[19].Host != "n19.example" {
		t.Errorf("%d more than %+v", more, list)
	}
	if list[0].Count != 2 {
		t.Errorf("the first was looked up %d times", list[0].Count)
	}
	if len(r.denials.names) != maxCounted || len(r.denials.answered) != maxAnswered {
		t.Errorf("%d names and %d answered ones are kept", len(r.denials.names), len(r.denials.answered))
	}
}

// What a search list made of a name doesn't crowd out what somebody meant.
func TestNamesOfTheSearchListTakeNoRoomInAReport(t *testing.T) {
	t.Parallel()
	r := configured(t, listing(), func(c *Config) { c.Search, c.Dial = []string{"svc.cluster.local", "cluster.local"}, noDial(t) })
	for i := range maxDenials {
		for _, suffix := range []string{"svc.cluster.local.", "cluster.local.", ""} {
			ask(t, r, fmt.Sprintf("n%d.example.%s", i, suffix), dnsmessage.TypeA)
		}
	}
	list, more := r.Denials()
	if len(list) != maxDenials || more != 0 || list[19].Host != "n19.example" {
		t.Errorf("%d more than %+v", more, list)
	}
}
