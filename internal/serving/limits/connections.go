package limits

import (
	"context"
	"net"
	"slices"
	"sync"
)

// Connections bounds the open connections of a listener, in total and for one source. When a bound is reached, the
// oldest connection that has not authenticated a request is closed: of the same source, or of the source that has the
// most of them. Connections of trusted proxies carry many clients and count in total only.
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
	// stays says that it isn't closed for another: a trusted proxy's, or one that has authenticated a request.
	stays, proxy bool
}

// Accept returns the next connection that is within the bounds.
func (c *Connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := &connection{Conn: accepted, owner: c}
		added.source, added.proxy = c.sources.ofConnection(accepted)
		added.stays = added.proxy
		surplus, ok := c.add(added)
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
func (c *Connections) add(added *connection) (surplus *connection, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := false
	if !added.proxy && c.count(func(o *connection) bool { return !o.proxy && o.source == added.source }) >= c.perSource {
		full, surplus = true, c.oldest(added.source)
	} else if len(c.open) >= c.total {
		full, surplus = true, c.oldest(c.largestSource())
	}
	if full && surplus == nil {
		return nil, false
	}
	c.remove(surplus)
	c.open = append(c.open, added)
	return surplus, true
}

func (c *Connections) count(counts func(*connection) bool) (n int) {
	for _, o := range c.open {
		if counts(o) {
			n++
		}
	}
	return n
}

// oldest returns the oldest unauthenticated connection of a source, nil if there is none.
func (c *Connections) oldest(source string) *connection {
	at := slices.IndexFunc(c.open, func(o *connection) bool { return !o.stays && o.source == source })
	if at < 0 {
		return nil
	}
	return c.open[at]
}

// largestSource returns the source with the most unauthenticated connections.
func (c *Connections) largestSource() (largest string) {
	counts := map[string]int{}
	for _, o := range c.open {
		if o.stays {
			continue
		}
		if counts[o.source]++; counts[o.source] > counts[largest] {
			largest = o.source
		}
	}
	return largest
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

// MarkAuthenticated keeps the connection of an authenticated request from being closed for another.
func MarkAuthenticated(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.stays = true
}
