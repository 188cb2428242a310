package mcpserver

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// connections bounds the open connections of a listener, in total and for one source. When a bound is reached, the
// oldest connection that has not authenticated a request is closed: of the same source, or of the source that has the
// most of them. Connections of trusted proxies carry many clients and count in total only.
type connections struct {
	net.Listener
	sources          *sources
	total, perSource int

	mu       sync.Mutex
	open     int
	bySource map[string]int
	// unauthenticated holds connections by source, the oldest first.
	unauthenticated map[string]*list.List
}

func limitConnections(l net.Listener, s *sources, total, perSource int) *connections {
	return &connections{
		Listener: l, sources: s, total: total, perSource: perSource,
		bySource: map[string]int{}, unauthenticated: map[string]*list.List{},
	}
}

// connection is an accepted connection.
type connection struct {
	net.Conn
	owner  *connections
	source string
	proxy  bool
	// place in the list of unauthenticated connections, nil when it isn't there.
	place  *list.Element
	closed bool
}

// Accept returns the next connection that is within the bounds.
func (c *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := &connection{Conn: accepted, owner: c}
		added.source, added.proxy = c.sources.ofConnection(accepted)
		surplus, ok := c.add(added)
		if surplus != nil {
			_ = surplus.Close()
		}
		if ok {
			return added, nil
		}
		_ = accepted.Close()
	}
}

// add counts a connection. It returns the connection to close instead, if any, and whether there is room at all.
func (c *connections) add(added *connection) (surplus *connection, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !added.proxy && c.bySource[added.source] >= c.perSource:
		surplus = c.oldest(added.source)
	case c.open >= c.total:
		surplus = c.oldest(c.largestSource())
	default:
		c.insert(added)
		return nil, true
	}
	if surplus == nil {
		return nil, false
	}
	c.drop(surplus)
	c.insert(added)
	return surplus, true
}

func (c *connections) insert(added *connection) {
	c.open++
	if added.proxy {
		return
	}
	c.bySource[added.source]++
	if c.unauthenticated[added.source] == nil {
		c.unauthenticated[added.source] = list.New()
	}
	added.place = c.unauthenticated[added.source].PushBack(added)
}

// oldest returns the oldest unauthenticated connection of a source, nil if there is none.
func (c *connections) oldest(source string) *connection {
	if own := c.unauthenticated[source]; own != nil {
		return own.Front().Value.(*connection)
	}
	return nil
}

func (c *connections) largestSource() string {
	largest, most := "", 0
	for source, own := range c.unauthenticated {
		if own.Len() > most {
			largest, most = source, own.Len()
		}
	}
	return largest
}

// drop stops counting a connection.
func (c *connections) drop(gone *connection) {
	if gone.closed {
		return
	}
	gone.closed = true
	c.open--
	c.leave(gone)
	if gone.proxy {
		return
	}
	if c.bySource[gone.source]--; c.bySource[gone.source] == 0 {
		delete(c.bySource, gone.source)
	}
}

// leave takes a connection out of the unauthenticated ones.
func (c *connections) leave(gone *connection) {
	if gone.place == nil {
		return
	}
	own := c.unauthenticated[gone.source]
	own.Remove(gone.place)
	gone.place = nil
	if own.Len() == 0 {
		delete(c.unauthenticated, gone.source)
	}
}

// Close closes the connection and makes room for another.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.drop(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// withConnection is for http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// markAuthenticated keeps the connection of an authenticated request from being closed for another.
func markAuthenticated(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.owner.leave(c)
}
