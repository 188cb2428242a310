package dispatch

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"toolcall.dev/operator/internal/dispatch/wire"
)

var (
	errNotHello = errors.New("the first message isn't a hello")
	errToken    = errors.New("the token does not belong to the Job that the hello names")
	errTaken    = errors.New("another process already answers for this Job")
	errTimeout  = errors.New("the hello came too late")
)

// sourceOf is the address that a connection comes from.
func sourceOf(conn net.Conn) netip.Addr {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// greet takes the handshake and the hello. The context's end closes the connection.
func (a *acceptor) greet(ctx context.Context, raw net.Conn, source netip.Addr) (*tls.Conn, *wire.Hello, error) {
	slotted := &slottedConn{Conn: raw, ctx: ctx, slots: a.handshakes, source: source}
	defer slotted.finish()
	conn := tls.Server(slotted, a.tls)
	if err := conn.Handshake(); err != nil { //nolint:noctx // HandshakeContext adds a goroutine, and the context's end closes the connection anyway
		return nil, nil, fmt.Errorf("handshake: %w", err)
	}
	size, err := wire.ReadHeader(conn, wire.MaxHello)
	if err != nil {
		return nil, nil, fmt.Errorf("read hello: %w", err)
	}
	m, err := wire.ReadFromRunner(conn, size)
	if err != nil {
		return nil, nil, fmt.Errorf("read hello: %w", err)
	}
	if m.Hello == nil {
		return nil, nil, errNotHello
	}
	return conn, m.Hello, nil
}

// verify says why a runner can't be served.
func (a *acceptor) verify(h *wire.Hello) error {
	switch {
	case h.Version != wire.Version:
		// A call that waits for this runner ends with this text.
		return fmt.Errorf("the runner speaks version %d of the protocol, this operator version %d: use an image with the runner of the operator's release", h.Version, wire.Version)
	case !a.Identity.CheckToken(*h):
		return errToken
	default:
		return checkForm(h)
	}
}

// lookUp says why a runner doesn't belong to a Job, a call or a session that exists. One that says that it has begun stays
// while nobody can tell: an API server that doesn't answer must not cost its result. The sweep asks again.
func (a *acceptor) lookUp(ctx context.Context, s *Runner) error {
	if a.Records == nil {
		return nil
	}
	err := a.records.check(ctx, s.hello.Namespace, s)
	if errors.Is(err, errUnknown) && !s.IsWaiting() {
		return nil
	}
	return err
}

// keyHash identifies the key that the peer proved to hold.
func keyHash(conn *tls.Conn) string {
	peers := conn.ConnectionState().PeerCertificates
	if len(peers) == 0 {
		return ""
	}
	sum := sha256.Sum256(peers[0].RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}
