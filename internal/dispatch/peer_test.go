package dispatch_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// peer is the other end of a connection, and sends what it likes.
type peer struct {
	t *testing.T
	*tls.Conn
}

// dialFrom opens a connection from an address of this machine.
func dialFrom(t *testing.T, o *operator, source string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	raw, err := dialer.Dial("tcp", o.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return raw
}

// clientTLS has a certificate and asks for none: the operator takes any, and the peer isn't what is tested.
func clientTLS(t *testing.T) *tls.Config {
	t.Helper()
	conf, err := newIdentity(t).ServerTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: conf.Certificates, InsecureSkipVerify: true}
}

func handshake(t *testing.T, raw net.Conn) *peer {
	t.Helper()
	p := &peer{t, tls.Client(raw, clientTLS(t))}
	if err := p.Handshake(); err != nil {
		t.Fatal(err)
	}
	return p
}

// newPeer is connected over the network and has made the handshake.
func newPeer(t *testing.T, o *operator) *peer {
	t.Helper()
	return handshake(t, dialFrom(t, o, "127.0.0.1"))
}

// send writes a frame.
func (p *peer) send(body string) {
	p.t.Helper()
	if err := p.write(body); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) write(body string) error {
	_, err := p.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// announce writes the length of a frame and nothing of it.
func (p *peer) announce(size int) {
	p.t.Helper()
	if _, err := p.Write(binary.BigEndian.AppendUint32(nil, uint32(size))); err != nil {
		p.t.Fatal(err)
	}
}

// Owners of runners that have call "c1".
var (
	theCall    = wire.Owner{Kind: wire.KindCall, UID: "c1", Name: "call"}
	theSession = wire.Owner{Kind: wire.KindSession, UID: "s1", Name: "session", Incarnation: 2}
	owners     = map[string]wire.Owner{"a call": theCall, "a session": theSession}
)

// waits introduces the runner of a Job that waits.
func (p *peer) waits(o *operator, job string) {
	p.t.Helper()
	p.send(helloOf(o, wire.Version, job, nil))
}

// hasCall introduces the runner of a Job that has begun, and runs call "c1".
func (p *peer) hasCall(o *operator, job string, owner wire.Owner) {
	p.t.Helper()
	p.send(helloOf(o, wire.Version, job, &owner))
	p.send(`{"held":{"uid":"c1","name":"call","state":"Running"}}`)
}

// helloOf is the hello of a runner that waits, or that announces one call of its owner.
func helloOf(o *operator, version int, job string, owner *wire.Owner) string {
	serving := ""
	if owner != nil {
		serving = fmt.Sprintf(`,"serving":{"kind":%q,"uid":%q,"name":%q,"incarnation":%d,"taken":1,"held":1}`, owner.Kind, owner.UID, owner.Name, owner.Incarnation)
	}
	return fmt.Sprintf(`{"hello":{"version":%d,"namespace":"ns","call":"call","job":%q,"jobUID":"%s-uid","pod":"pod","podUID":"pod-uid","node":"node","token":%q%s}}`,
		version, job, job, o.identity.Token("ns", job, job+"-uid"), serving)
}

// receive reads the next message.
func (p *peer) receive() (*wire.Message, error) { return wire.Read(p, wire.MaxAssignment) }

// awaitEnd reads until the operator ends the connection.
func (p *peer) awaitEnd() { _, _ = io.Copy(io.Discard, p) }

// keepAlive pings and reads what the operator sends, until the connection or the test ends.
func keepAlive(t *testing.T, p *peer) {
	go p.awaitEnd()
	keepPinging(t, p)
}

func keepPinging(t *testing.T, p *peer) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		for p.write(`{"ping":{}}`) == nil {
			select {
			case <-over:
				return
			case <-time.After(wire.PingInterval):
			}
		}
	}()
}

// network is a listener in memory, for a bubble of testing/synctest: connections there pass time only when all wait.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newNetwork() *network {
	return &network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// from opens a connection from an address.
func (n *network) from(source string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.conns <- addressed{near, &net.TCPAddr{IP: net.ParseIP(source), Port: 1}}:
		return far, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }

// runner connects a real runner's end over the network.
func (n *network) runner(t *testing.T, env map[string]string) *dial.Conn {
	t.Helper()
	config := runnerOf(t, env)
	config.DialContext = func(context.Context, string, string) (net.Conn, error) { return n.from("10.1.0.1") }
	return connect(t, config, nil)
}

// peer connects what sends what it likes.
func (n *network) peer(t *testing.T) *peer {
	t.Helper()
	raw, err := n.from("10.2.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return handshake(t, raw)
}

// bubble is an operator on a network in memory.
func bubble(t *testing.T, limits dispatch.Limits) (*network, *operator) {
	n := newNetwork()
	return n, serveOn(t, newIdentity(t), n, limits)
}
