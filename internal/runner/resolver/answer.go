package resolver

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"toolcall.dev/operator/internal/network"
)

// maxAddresses bounds the addresses of one answer, which all are given out, and its other records.
const maxAddresses = 128

const (
	// minTTL and maxTTL bound the time to live that addresses are given out with. Programs keep what they looked up for at least minTTL. In
	// the cluster it has no lower bound, as another pod soon has an address.
	minTTL = time.Minute
	maxTTL = time.Hour
	// localTTL is the time to live of localhost.
	localTTL = time.Minute
)

// answer works out the response to a client's message. It is nil for what must not be answered.
func (r *Resolver) answer(ctx context.Context, msg []byte) *response {
	q, code, err := parseQuery(msg)
	if err != nil {
		return nil
	}
	if code != dnsmessage.RCodeSuccess {
		return &response{query: q, code: code}
	}
	if code, is := q.unsupported(); is {
		return &response{query: q, code: code}
	}
	if isLocalhost(q.name) {
		return &response{query: q, addrs: localAddrs(q.question.Type), ttl: localTTL}
	}
	if v := r.lookup(q); !v.Allowed {
		return &response{query: q, code: dnsmessage.RCodeNameError, rule: v.Rule}
	}
	r.denials.addAnswered(q.name)
	switch {
	case q.isAddress():
		return r.answerAddrs(ctx, q)
	case !r.rules.IsOpen():
		return &response{query: q, rule: "only addresses are looked up: other records need the policy's network.mode Open, and no hosts of the call"}
	case !q.isPassedOn():
		return &response{query: q, rule: "records of this type aren't looked up"}
	}
	return r.answerRecords(ctx, q)
}

func localAddrs(t dnsmessage.Type) []netip.Addr {
	switch t {
	case dnsmessage.TypeA:
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	case dnsmessage.TypeAAAA:
		return []netip.Addr{netip.IPv6Loopback()}
	default:
		return nil
	}
}

// lookup says whether a name may be looked up, and counts a refusal.
func (r *Resolver) lookup(q *query) network.Verdict {
	if q.name == "" {
		name := strconv.QuoteToASCII(q.question.Name.String())
		v := network.Verdict{Reason: network.ReasonNotListed, Host: name, Rule: "no host can have this name: use letters, digits, hyphens and underscores"}
		r.denials.add(name, q.question.Type, v, false)
		return v
	}
	v := r.explain(q.name, r.rules.Lookup(q.name))
	switch {
	case v.Allowed && isReverse(q.name):
		return network.Verdict{Reason: network.ReasonNotListed, Host: q.name, Rule: "addresses aren't looked up"}
	case !v.Allowed && !isReverse(q.name):
		r.denials.add(q.name, q.question.Type, v, false)
	}
	return v
}

// explain has the refusal of a name without dots say what would pass: nobody can look it up but with a domain of the search
// list, and that name is what the rules would have to list.
func (r *Resolver) explain(name string, v network.Verdict) network.Verdict {
	if v.Allowed || strings.Contains(name, ".") || len(r.denials.search) == 0 {
		return v
	}
	meant := name + "." + r.denials.search[0]
	if whole := r.rules.Lookup(meant); !whole.Allowed {
		v.Rule = name + " is " + meant + " by the search list: " + whole.Rule
	}
	return v
}

// answerRecords passes on records that are no addresses. What they lead to is looked up and decided about in its turn.
func (r *Resolver) answerRecords(ctx context.Context, q *query) *response {
	found, err := r.upstream.lookup(ctx, q.name, q.question.Type)
	if err != nil {
		return failure(q, err)
	}
	return &response{query: q, code: found.code, ttl: min(found.ttl, maxTTL), records: found.records[:min(len(found.records), maxAddresses)]}
}

func failure(q *query, err error) *response {
	return &response{query: q, code: dnsmessage.RCodeServerFailure, rule: err.Error(), extended: extendedErrorOf(err)}
}

func (r *Resolver) answerAddrs(ctx context.Context, q *query) *response {
	found, err := r.upstream.lookup(ctx, q.name, q.question.Type)
	if err != nil {
		return failure(q, err)
	}
	answer := &response{query: q, code: found.code, ttl: min(found.ttl, maxTTL)}
	name := network.LookedUp{Name: q.name, Target: found.target}
	for _, addr := range found.addrs {
		v := r.rules.Reachable(addr, name)
		switch {
		case v.Allowed && len(answer.addrs) < maxAddresses:
			answer.addrs = append(answer.addrs, addr)
		case !v.Allowed && answer.rule == "":
			answer.rule = v.Rule
			r.denials.add(q.name, q.question.Type, v, true)
		}
	}
	if !slices.ContainsFunc(answer.addrs, r.rules.InCluster) {
		answer.ttl = max(answer.ttl, minTTL)
	}
	if len(answer.addrs) > 0 {
		answer.rule = ""
		r.book.give(name, answer.addrs, answer.ttl)
	}
	return answer
}
