package dispatch

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Bounds of what a peer may take.
const (
	// helloTimeout is how long a peer may take for the handshake and its hello.
	helloTimeout = 10 * time.Second
	// silence is how long a runner may say nothing; it pings every five seconds.
	silence = 30 * time.Second
	// writeTimeout is how long one frame may take to leave.
	writeTimeout = 10 * time.Second
	// maxConnections bounds the connections that are open at once, known or not.
	maxConnections = 20000
	// maxStrangers bounds the connections that have not yet said who they are.
	maxStrangers = 256
)

// Authenticate checks that a hello's token belongs to the Job that it names.
type Authenticate func(wire.Hello) bool

// Server accepts runners. Run it on one replica at a time: the one that holds the lease.
type Server struct {
	Hub          *Hub
	Authenticate Authenticate
	TLS          *tls.Config
	Log          logr.Logger

	connections sync.WaitGroup
}

// Serve accepts connections until the context ends, then closes all of them and returns nil.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer s.connections.Wait()
	defer cancel()

	all := make(chan struct{}, maxConnections)
	strangers := make(chan struct{}, maxStrangers)
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept runners: %w", err)
		}
		if !take(all) {
			conn.Close()
			continue
		}
		s.connections.Go(func() {
			defer func() { <-all }()
			s.handle(ctx, conn, strangers)
		})
	}
}

func take(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// handle serves one connection to its end.
func (s *Server) handle(ctx context.Context, raw net.Conn, strangers chan struct{}) {
	conn := tls.Server(raw, s.TLS)
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()

	select {
	case strangers <- struct{}{}:
	case <-ctx.Done():
		return
	}
	session, err := s.admit(ctx, conn)
	<-strangers
	if err != nil {
		s.Log.V(1).Info("Refused a connection", "remote", raw.RemoteAddr().String(), "reason", err.Error())
		return
	}
	defer s.Hub.remove(session)
	err = s.read(conn, session)
	if ctx.Err() == nil {
		s.Log.V(1).Info("A runner's connection ended", "pod", session.hello.Namespace+"/"+session.hello.Pod, "reason", err.Error())
	}
}

var (
	errNotHello = errors.New("the first message is no hello")
	errToken    = errors.New("the token does not belong to the Job that the hello names")
	errTaken    = errors.New("another process already answers for this Job")
)

// admit finds out who is there and registers the session.
func (s *Server) admit(ctx context.Context, conn *tls.Conn) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	m, err := wire.Read(conn, wire.MaxHello)
	if err != nil {
		return nil, fmt.Errorf("read hello: %w", err)
	}
	session := newSession(conn, m.Hello)
	switch {
	case m.Hello == nil:
		return nil, errNotHello
	case m.Hello.Version != wire.Version:
		session.Refuse(fmt.Sprintf("this operator speaks version %d of the protocol", wire.Version))
		return nil, fmt.Errorf("protocol version %d", m.Hello.Version)
	case !s.Authenticate(*m.Hello):
		session.Refuse(errToken.Error())
		return nil, errToken
	case !s.Hub.add(session):
		return nil, errTaken
	}
	return session, nil
}

func newSession(conn *tls.Conn, hello *wire.Hello) *Session {
	session := &Session{close: func() { conn.NetConn().Close() }}
	if hello != nil {
		session.hello = *hello
		session.hello.Token = ""
		session.call, session.callUID = hello.Call, hello.CallUID
	}
	if peers := conn.ConnectionState().PeerCertificates; len(peers) > 0 {
		sum := sha256.Sum256(peers[0].RawSubjectPublicKeyInfo)
		session.keyHash = hex.EncodeToString(sum[:])
	}
	var writing sync.Mutex
	session.send = func(m *wire.Message) error {
		writing.Lock()
		defer writing.Unlock()
		if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		return wire.Write(conn, m)
	}
	return session
}

// read takes the runner's messages until the connection ends, and says why it did.
func (s *Server) read(conn *tls.Conn, session *Session) error {
	for {
		if err := conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		m, err := wire.Read(conn, wire.MaxResult)
		if err != nil {
			return err
		}
		switch {
		case m.Ping != nil:
			if err := session.send(&wire.Message{Pong: &wire.Ping{}}); err != nil {
				return err
			}
		case m.Result != nil:
			session.setResult(m.Result)
			s.Hub.notify(session)
		default:
			return errors.New("a message that a runner doesn't send")
		}
	}
}
