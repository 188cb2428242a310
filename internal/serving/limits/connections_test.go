package limits

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// fakeListener accepts connections from any address.
type fakeListener struct {
	incoming chan net.Conn
	closed   chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error   { close(l.closed); return nil }
func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

// fakeConn is a connection from an address that records when it is closed.
type fakeConn struct {
	net.Conn
	from   string
	once   sync.Once
	closed chan struct{}
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1234}
}

func (c *fakeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *fakeConn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// connectionTest opens connections at a bounded listener.
type connectionTest struct {
	t       *testing.T
	bounded *Connections
	from    *fakeListener
}

func newConnectionTest(t *testing.T, total, perSource int, proxies ...string) *connectionTest {
	l := &fakeListener{incoming: make(chan net.Conn, 1), closed: make(chan struct{})}
	return &connectionTest{t: t, from: l, bounded: NewConnections(l, &Sources{Proxies: mustParseProxies(t, proxies...)}, total, perSource)}
}

// open opens a connection that there is room for.
func (c *connectionTest) open(from string) (*fakeConn, net.Conn) {
	c.t.Helper()
	opened := &fakeConn{from: from, closed: make(chan struct{})}
	c.from.incoming <- opened
	accepted, err := c.bounded.Accept()
	if err != nil {
		c.t.Fatal(err)
	}
	return opened, accepted
}

// openTooMany opens a connection that there is no room for, and another from elsewhere after that.
func (c *connectionTest) openTooMany(from, elsewhere string) {
	c.t.Helper()
	surplus := &fakeConn{from: from, closed: make(chan struct{})}
	c.from.incoming <- surplus
	next := &fakeConn{from: elsewhere, closed: make(chan struct{})}
	go func() { c.from.incoming <- next }()
	accepted, err := c.bounded.Accept()
	if err != nil || !surplus.isClosed() || next.isClosed() {
		c.t.Errorf("%v; the surplus connection is closed: %t, the next one: %t", err, surplus.isClosed(), next.isClosed())
	}
	_ = accepted.Close()
}

// authenticateOn marks a connection as the server does when it has authenticated a request. The request goes on until it is answered.
func authenticateOn(c net.Conn, tenant string) (answered func()) {
	return Authenticated(WithConnection(context.Background(), c), tenant)
}

func TestTheOldestUnauthenticatedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	c := newConnectionTest(t, 100, 3)
	first, firstAccepted := c.open("192.0.2.1")
	authenticateOn(firstAccepted, "tenant")()
	second, _ := c.open("192.0.2.1")
	third, _ := c.open("192.0.2.1")
	other, _ := c.open("192.0.2.2")
	fourth, _ := c.open("192.0.2.1")
	if first.isClosed() || !second.isClosed() || third.isClosed() || fourth.isClosed() || other.isClosed() {
		t.Errorf("closed: %t %t %t %t, another source's: %t", first.isClosed(), second.isClosed(), third.isClosed(), fourth.isClosed(), other.isClosed())
	}
}

// A tenant keeps one connection, whoever comes.
func TestAuthenticatedConnectionsStay(t *testing.T) {
	t.Parallel()
	c := newConnectionTest(t, 3, 2)
	var opened []*fakeConn
	var accepted []net.Conn
	for i, from := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2"} {
		o, a := c.open(from)
		authenticateOn(a, string(rune('a'+i)))()
		authenticateOn(a, string(rune('a'+i)))()
		opened, accepted = append(opened, o), append(accepted, a)
	}
	_ = accepted[2].Close()
	c.openTooMany("192.0.2.1", "192.0.2.3")
	for i, o := range opened[:2] {
		if o.isClosed() {
			t.Errorf("authenticated connection %d was closed", i)
		}
	}
}

// At the total limit, the source with the most unauthenticated connections loses one.
func TestTheLargestSourceLosesAConnection(t *testing.T) {
	t.Parallel()
	c := newConnectionTest(t, 10, 8)
	visitor, _ := c.open("192.0.2.9")
	var flood []*fakeConn
	for range 8 {
		opened, _ := c.open("192.0.2.1")
		flood = append(flood, opened)
	}
	c.open("192.0.2.2")
	newcomer, _ := c.open("192.0.2.3")
	if visitor.isClosed() || newcomer.isClosed() || !flood[0].isClosed() || flood[1].isClosed() {
		t.Errorf("closed: the visitor %t, the newcomer %t, the flood's first %t and second %t",
			visitor.isClosed(), newcomer.isClosed(), flood[0].isClosed(), flood[1].isClosed())
	}
}

// Where nobody is a stranger, the tenant with the most connections loses one, at the total limit and at that of a source: one without a
// request, as long as it has such a one.
func TestTheLargestTenantLosesAConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		perSource int
		sources   []string
	}{
		"in total":        {10, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"}},
		"from one source": {4, []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConnectionTest(t, 4, test.perSource)
			small, accepted := c.open(test.sources[0])
			authenticateOn(accepted, "small")
			var large []*fakeConn
			for i := range 3 {
				opened, accepted := c.open(test.sources[1+i])
				if answered := authenticateOn(accepted, "large"); i > 0 {
					answered()
				}
				large = append(large, opened)
			}
			for range 2 {
				_, accepted := c.open(test.sources[4])
				authenticateOn(accepted, "newcomer")()
			}
			if small.isClosed() || large[0].isClosed() || !large[1].isClosed() || !large[2].isClosed() {
				t.Errorf("closed: the small tenant's %t, the large one's %t %t %t", small.isClosed(), large[0].isClosed(), large[1].isClosed(), large[2].isClosed())
			}
		})
	}
}

// A running request ends only when nobody has an idle connection besides the last one: then it is the newest of the largest tenant.
func TestARunningRequestEndsLast(t *testing.T) {
	t.Parallel()
	c := newConnectionTest(t, 5, 10)
	var large, small []*fakeConn
	for range 3 {
		opened, accepted := c.open("192.0.2.1")
		authenticateOn(accepted, "large")
		large = append(large, opened)
	}
	for range 2 {
		opened, accepted := c.open("192.0.2.2")
		authenticateOn(accepted, "small")()
		small = append(small, opened)
	}
	var closed []int
	for newcomer := range 2 {
		_, accepted := c.open("192.0.2.3")
		authenticateOn(accepted, fmt.Sprint("newcomer ", newcomer))
		for i, opened := range slices.Concat(large, small) {
			if opened.isClosed() {
				closed = append(closed, i)
			}
		}
	}
	if want := []int{3, 2, 3}; !slices.Equal(closed, want) {
		t.Errorf("closed: %v, want %v", closed, want)
	}
}

func TestProxiesHaveNoBoundOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := newConnectionTest(t, 6, 2, "10.0.0.0/8")
	var proxied []*fakeConn
	for range 4 {
		opened, _ := c.open("10.0.0.1")
		proxied = append(proxied, opened)
	}
	for range 5 {
		c.open("192.0.2.1")
	}
	for i, opened := range proxied {
		if opened.isClosed() {
			t.Errorf("connection %d of the proxy was closed", i)
		}
	}
}

// Closing makes room, once, and leaves nothing behind.
func TestClosedConnectionsDoNotCount(t *testing.T) {
	t.Parallel()
	c := newConnectionTest(t, 4, 2, "10.0.0.0/8")
	for range 50 {
		_, one := c.open("192.0.2.1")
		_, two := c.open("192.0.2.1")
		_, proxied := c.open("10.0.0.1")
		authenticateOn(two, "tenant")()
		for _, accepted := range []net.Conn{one, two, proxied, one} {
			if err := accepted.Close(); err != nil {
				t.Fatal(err)
			}
		}
		authenticateOn(one, "tenant")()
	}
	if n := len(c.bounded.open); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

func TestAClosedListenerAcceptsNothing(t *testing.T) {
	t.Parallel()
	c := newConnectionTest(t, 4, 2)
	time.AfterFunc(time.Millisecond, func() { _ = c.bounded.Close() })
	if _, err := c.bounded.Accept(); err == nil {
		t.Error("a connection was accepted")
	}
}

// A context without a connection, as in tests of the handler alone, is fine.
func TestRequestsWithoutAConnection(t *testing.T) {
	t.Parallel()
	Authenticated(context.Background(), "tenant")()
	authenticateOn(&fakeConn{}, "tenant")()
}
