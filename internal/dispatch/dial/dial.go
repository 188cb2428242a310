// Package dial is the runner's end of the connection to the operator.
//
// It makes the runner's key, connects, proves who it is, and hands messages over. It checks the operator's
// certificate against the one authority that the pod was given; a peer with another certificate gets
// nothing. It is linked into every tool pod and imports the standard library and wire only. It does not
// start or stop processes.
package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Config is what the pod tells its runner.
type Config struct {
	// Endpoints are host:port pairs of the operator, tried in order.
	Endpoints []string
	// Hello is sent on every connection.
	Hello wire.Hello
	tls   *tls.Config
}

// FromEnv reads the configuration from the variables that the operator put into the pod, and makes the key
// pair that ties this process to its call. The private key never leaves the process.
func FromEnv(getenv func(string) string) (*Config, error) {
	missing := func(name string) error {
		return fmt.Errorf("variable %s is missing: a runner is started by the operator", name)
	}
	for _, name := range []string{wire.EnvEndpoints, wire.EnvCA, wire.EnvToken, wire.EnvNamespace, wire.EnvJob, wire.EnvJobUID, wire.EnvPod, wire.EnvPodUID} {
		if getenv(name) == "" {
			return nil, missing(name)
		}
	}
	conf, err := clientTLS(getenv(wire.EnvCA))
	if err != nil {
		return nil, err
	}
	return &Config{
		Endpoints: strings.Split(getenv(wire.EnvEndpoints), ","),
		Hello: wire.Hello{
			Version: wire.Version, Namespace: getenv(wire.EnvNamespace),
			Call: getenv(wire.EnvCall), Pool: getenv(wire.EnvPool), Job: getenv(wire.EnvJob), JobUID: getenv(wire.EnvJobUID),
			Pod: getenv(wire.EnvPod), PodUID: getenv(wire.EnvPodUID),
			Node: getenv(wire.EnvNode), Token: getenv(wire.EnvToken),
		},
		tls: conf,
	}, nil
}

func clientTLS(ca string) (*tls.Config, error) {
	der, err := base64.StdEncoding.DecodeString(ca)
	if err != nil {
		return nil, fmt.Errorf("variable %s is not base64: %w", wire.EnvCA, err)
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("variable %s holds no certificate: %w", wire.EnvCA, err)
	}
	own, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("make the runner's key: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      roots,
		ServerName:   wire.ServerName,
		Certificates: []tls.Certificate{own},
	}, nil
}

// selfSigned makes a certificate whose only use is to carry a public key: the operator looks at the key,
// not at names or dates. The dates are wide so that no clock can break it.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "runner"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Timeouts of a connection.
const (
	connectTimeout = 5 * time.Second
	headStart      = 250 * time.Millisecond
	writeTimeout   = 20 * time.Second
	pingInterval   = 5 * time.Second
	// silence is how long the operator may say nothing before the connection counts as dead.
	silence = 3 * pingInterval
)

// Conn is one connection. Send may be called from any goroutine, Receive from one at a time.
type Conn struct {
	conn    *tls.Conn
	writing sync.Mutex
	stop    context.CancelFunc
}

// Call is the one that a runner has; empty when it waits for one.
type Call struct{ UID, Name string }

// Dial connects to the first endpoint that answers, and says hello for the call that this runner already has,
// if any.
func (c *Config) Dial(ctx context.Context, call Call) (*Conn, error) {
	connected, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	pinging, stop := context.WithCancel(ctx)
	conn := &Conn{conn: connected, stop: stop}
	hello := c.Hello
	if call.UID != "" {
		hello.CallUID, hello.Call = call.UID, call.Name
	}
	if err := conn.Send(&wire.Message{Hello: &hello}); err != nil {
		conn.Close()
		return nil, err
	}
	go conn.ping(pinging)
	return conn, nil
}

// answer is what came of one attempt to connect.
type answer struct {
	conn *tls.Conn
	err  error
}

// connect tries the endpoints in order. The next one is tried when the one before it has failed, and also when it
// says nothing for a moment: the operator's own pod is the first, and nobody answers at the address of a pod that
// is gone. The first that answers wins.
func (c *Config) connect(ctx context.Context) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	answers := make(chan answer)
	waiting, open := c.Endpoints, 0
	var failures []error
	next := time.NewTimer(0)
	defer next.Stop()
	for open > 0 || len(waiting) > 0 {
		select {
		case <-next.C:
			if len(waiting) > 0 {
				go c.try(ctx, waiting[0], answers)
				waiting, open = waiting[1:], open+1
				next.Reset(headStart)
			}
		case a := <-answers:
			if a.err == nil {
				return a.conn, nil
			}
			failures, open = append(failures, a.err), open-1
			next.Reset(0)
		case <-ctx.Done():
			failures = append(failures, fmt.Errorf("connect to %s: %w", strings.Join(c.Endpoints, ", "), ctx.Err()))
			return nil, errors.Join(failures...)
		}
	}
	return nil, errors.Join(failures...)
}

// try hands over a connection, or closes it when nobody waits for it any more.
func (c *Config) try(ctx context.Context, endpoint string, answers chan<- answer) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: c.tls}
	raw, err := dialer.DialContext(ctx, "tcp", endpoint)
	a := answer{}
	if err != nil {
		a.err = fmt.Errorf("%s: %w", endpoint, err)
	} else {
		a.conn = raw.(*tls.Conn)
	}
	select {
	case answers <- a:
	case <-ctx.Done():
		if a.conn != nil {
			a.conn.Close()
		}
	}
}

// ping keeps the operator answering, so that a connection whose other end vanished is noticed.
func (c *Conn) ping(ctx context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.conn.Close()
			return
		case <-tick.C:
			if err := c.Send(&wire.Message{Ping: &wire.Ping{}}); err != nil {
				c.conn.Close()
				return
			}
		}
	}
}

// Send writes one message.
func (c *Conn) Send(m *wire.Message) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return wire.Write(c.conn, m)
}

// Receive waits for the next message that isn't a Pong. It fails when the operator has been silent too long.
func (c *Conn) Receive() (*wire.Message, error) {
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return nil, err
		}
		m, err := wire.Read(c.conn, wire.MaxAssignment)
		if err != nil {
			return nil, err
		}
		if m.Pong == nil {
			return m, nil
		}
	}
}

// Close ends the connection.
func (c *Conn) Close() {
	c.stop()
	c.conn.Close()
}
