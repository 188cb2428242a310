package resolver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"toolcall.dev/operator/internal/network"
)

// Bounds of what a call can have of its resolver at once.
const (
	maxStreams = 64
	// maxQueries are under way at once.
	maxQueries = 64
)

// Config is what a resolver is made of.
type Config struct {
	// Rules are required. They say which names may be looked up.
	Rules *network.Decider
	// Nameservers are asked in this order. None is fine for a call that looks up nothing but Hosts. They must not be in the pod, where
	// this resolver is, and commands can answer.
	Nameservers []netip.AddrPort
	// Search is the search list of the command's resolv.conf. It only says which refusals nobody meant.
	Search []string
	// Hosts are entries of /etc/hosts, as they were before the first command of the pod ran: a command that can write the
	// file could otherwise give itself addresses.
	Hosts []HostsEntry
	// Dial opens connections to nameservers; nil means the network's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock of given-out addresses; nil means time.Now.
	Now func() time.Time
}

// Resolver answers the lookups of one call. Its methods may be called by any number of goroutines.
type Resolver struct {
	rules    *network.Decider
	upstream *upstream
	book     *book
	denials  *denials

	// streams and queries have an element for each that is under way.
	streams, queries chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup
}

// New makes a resolver. It must be closed.
func New(c Config) *Resolver {
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	r := &Resolver{
		rules:    c.Rules,
		upstream: &upstream{servers: c.Nameservers, dial: c.Dial},
		book:     &book{now: c.Now},
		denials:  &denials{search: canonicalSearch(c.Search)},
		streams:  make(chan struct{}, maxStreams),
		queries:  make(chan struct{}, maxQueries),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.addHosts(c.Hosts)
	return r
}

// canonicalSearch leaves out what is no name: nobody means anything by it.
func canonicalSearch(list []string) (search []string) {
	for _, domain := range list {
		if name, err := network.Name(domain); err == nil {
			search = append(search, name)
		}
	}
	return search
}

// addHosts gives the addresses of names that may be looked up out for the whole call.
func (r *Resolver) addHosts(list []HostsEntry) {
	for _, e := range list {
		for _, text := range e.Names {
			name, err := network.Name(text)
			given := network.LookedUp{Name: name, Target: name}
			usable := err == nil && r.rules.Lookup(name).Allowed && r.rules.Reachable(e.Addr, given).Allowed
			if usable && r.book.count < maxHostsGrants {
				r.book.keep(given, e.Addr)
			}
		}
	}
}

// Decide says whether the call may connect to an address, by the rules and by the names that it was given out for.
func (r *Resolver) Decide(to netip.AddrPort, protocol network.Protocol) network.Verdict {
	valid, expired := r.book.names(to.Addr())
	c := network.Connection{To: to, Protocol: protocol, Names: valid}
	verdict := r.rules.Decide(c)
	if verdict.Allowed {
		return verdict
	}
	for _, name := range expired {
		c.Names = []network.LookedUp{name}
		if r.rules.Decide(c).Allowed {
			verdict.Host = name.Name
			verdict.Rule = fmt.Sprintf("%s was an address of %s, whose time to live is over: look the name up again", to.Addr(), name.Name)
			return verdict
		}
	}
	return verdict
}

// Denials returns the names whose lookups were refused, and how many more names there were than it lists.
func (r *Resolver) Denials() (list []Denial, more int64) { return r.denials.report() }

// Failures returns the name that failed last to be looked up, nil if there is none, and how many other names failed. It
// counts the first names only, up to a bound, and none that the nameservers answered all the same.
func (r *Resolver) Failures() (last *Failure, others int) { return r.upstream.failures.report() }

// Close ends all streams and queries, and waits for them.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.tasks.Wait()
}

// begin counts a task that Close waits for. It is false after Close.
func (r *Resolver) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.tasks.Add(1)
	return true
}
