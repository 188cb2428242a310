package limits

import (
	"context"
	"net"
	"slices"
	"sync"
)

// Connections bounds the open connections of a listener, in total and from one source. When a bound is reached, whoever has most of
// them gives one up: among the sources, as long as there are connections that have authenticated no request, and otherwise among the
// tenants, of which each keeps one. A running request ends only when no tenant has a connection without one to give up.
// Trusted proxies carry many clients: their connections have no bound for their source.
type Connections struct {
	net.Listener
	sources          *Sources
	total, perSource int

	mu sync.Mutex
	// open are the open connections, the oldest first.
	open []*connection
}

// NewConnections bounds the connections of a listener.
func NewConnections(l net.Listener, s *Sources, total, perSource int) *Connections {
	return &Connections{Listener: l, sources: s, total: total, perSource: perSource}
}

// maxHealth and maxHealthPerSource bound the connections for health checks and metrics.
const maxHealth, maxHealthPerSource = 64, 16

// ForHealth bounds the connections for health checks and metrics, so that nobody keeps the kubelet's from being answered.
func ForHealth(l net.Listener) net.Listener {
	return NewConnections(l, &Sources{}, maxHealth, maxHealthPerSource)
}

// connection is an accepted connection.
type connection struct {
	net.Conn
	owner  *Connections
	source string
	// tenant is whose request was authenticated last, empty before the first; requests are those that aren't answered yet.
	tenant   string
	requests int
}

// Accept returns the next connection that is within the bounds.
func (c *Connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source, isProxy := c.sources.ofConnection(accepted)
		perSource := c.perSource
		if isProxy {
			perSource = c.total
		}
		added := &connection{Conn: accepted, owner: c, source: source}
		surplus, ok := c.add(added, perSource)
		if surplus != nil {
			_ = surplus.Conn.Close()
		}
		if ok {
			return added, nil
		}
		_ = accepted.Close()
	}
}

// add counts a connection. It returns the connection to close instead, if any, and whether there is room at all.
func (c *Connections) add(added *connection, perSource int) (surplus *connection, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sameSource := slices.DeleteFunc(slices.Clone(c.open), func(o *connection) bool { return o.source != added.source })
	switch {
	case len(sameSource) >= perSource:
		surplus = givesWay(sameSource)
	case len(c.open) >= c.total:
		surplus = givesWay(c.open)
	default:
		c.open = append(c.open, added)
		return nil, true
	}
	if surplus == nil {
		return nil, false
	}
	c.remove(surplus)
	c.open = append(c.open, added)
	return surplus, true
}

// holder counts a connection: its source until a request authenticates, its tenant afterwards.
type holder struct {
	stranger bool
	name     string
}

func (c *connection) holder() holder {
	if c.tenant == "" {
		return holder{true, c.source}
	}
	return holder{false, c.tenant}
}

// givesWay returns the connection to close for a new one, nil if there is none.
func givesWay(open []*connection) (chosen *connection) {
	counts := map[holder]int{}
	for _, o := range open {
		counts[o.holder()]++
	}
	var most []int
	for i, o := range open {
		if weight := o.weight(counts[o.holder()], i); slices.Compare(weight, most) > 0 {
			most, chosen = weight, o
		}
	}
	return chosen
}

// weight says which connection gives way, the one with the largest: a stranger's, else one without a running request, else one with. Of
// these, it is one of whoever has most: the oldest, and of those with a request the newest, which loses least. A tenant's only one stays.
func (c *connection) weight(held, place int) []int {
	switch {
	case c.tenant == "":
		return []int{2, held, -place}
	case held < 2:
		return nil
	case c.requests == 0:
		return []int{1, held, -place}
	default:
		return []int{0, held, place}
	}
}

func (c *Connections) remove(gone *connection) {
	if at := slices.Index(c.open, gone); at >= 0 {
		c.open = slices.Delete(c.open, at, at+1)
	}
}

// Close closes the connection and makes room for another.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.remove(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// WithConnection is for http.Server.ConnContext.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// Authenticated notes that the request of a context is a tenant's. The caller calls answered after the request.
func Authenticated(ctx context.Context, tenant string) (answered func()) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.tenant = tenant
	c.requests++
	return func() {
		c.owner.mu.Lock()
		defer c.owner.mu.Unlock()
		c.requests--
	}
}
