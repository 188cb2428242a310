package dispatch

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Gate bounds the connections of an HTTP server over TLS whose peers haven't said who they are, as they are bounded for
// runners: a newcomer doesn't wait behind a flood, and none of another source goes for it.
type Gate struct {
	net.Listener
	unauthenticated *unauthenticated
}

// NewGate makes one before a listener.
func NewGate(listener net.Listener) *Gate {
	return &Gate{Listener: listener, unauthenticated: newUnauthenticated()}
}

// guest is a connection whose peer is unknown until stay is called.
type guest struct {
	net.Conn
	stay func()
}

// Close forgets the connection.
func (g *guest) Close() error {
	g.stay()
	return g.Conn.Close()
}

// Accept returns the next connection that there is room for.
func (g *Gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := g.unauthenticated.add(sourceOf(conn), time.Now(), func() { conn.Close() })
		if c == nil {
			conn.Close()
			continue
		}
		return &guest{conn, func() { g.unauthenticated.remove(c) }}, nil
	}
}

// ConnState is the server's hook: the handshake is over with the first request, and has checked the peer's certificate.
func (g *Gate) ConnState(conn net.Conn, state http.ConnState) {
	secured, ok := conn.(*tls.Conn)
	if !ok || state != http.StateActive {
		return
	}
	if known, ok := secured.NetConn().(*guest); ok {
		known.stay()
	}
}
