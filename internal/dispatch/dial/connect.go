package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

const (
	// connectTimeout is how long it may take to connect and to say hello.
	connectTimeout = 5 * time.Second
	// fallbackDelay is how long an endpoint may say nothing before the next one is tried as well.
	fallbackDelay = 250 * time.Millisecond
)

// Dial connects to the first endpoint that answers, and says hello. serving is what the runner has, nil while it waits. The
// caller sends the calls that it counts first: an operator may take its time over them.
func (c *Config) Dial(ctx context.Context, serving *wire.Serving) (*Conn, error) {
	hello := c.Hello
	hello.Serving = serving
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	connected, err := c.connect(connecting)
	if err != nil {
		return nil, err
	}
	if err := sayHello(connecting, connected, &hello); err != nil {
		connected.NetConn().Close()
		return nil, fmt.Errorf("say hello: %w", err)
	}
	return newConn(ctx, connected), nil
}

func sayHello(ctx context.Context, conn *tls.Conn, hello *wire.Hello) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if err := wire.Write(conn, &wire.Message{Hello: hello}); err != nil {
		return err
	}
	return conn.SetWriteDeadline(time.Time{})
}

// attempt is how one attempt to connect ended.
type attempt struct {
	conn *tls.Conn
	err  error
}

// connect tries the endpoints in order. It tries the next one when the one before it has failed, and also when that
// says nothing for a moment: the operator's own pod is the first, and nobody answers at the address of a pod that
// is gone. The first that answers wins.
func (c *Config) connect(ctx context.Context) (*tls.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempts := make(chan attempt)
	untried, pending := c.Endpoints, 0
	var failures []error
	next := time.NewTimer(0)
	defer next.Stop()
	for pending > 0 || len(untried) > 0 {
		select {
		case <-next.C:
			if len(untried) > 0 {
				go c.try(ctx, untried[0], attempts)
				untried, pending = untried[1:], pending+1
				next.Reset(fallbackDelay)
			}
		case a := <-attempts:
			if a.err == nil {
				return a.conn, nil
			}
			failures, pending = append(failures, a.err), pending-1
			next.Reset(0)
		case <-ctx.Done():
			failures = append(failures, fmt.Errorf("connect to %s: %w", strings.Join(c.Endpoints, ", "), ctx.Err()))
			return nil, errors.Join(failures...)
		}
	}
	return nil, errors.Join(failures...)
}

// try reports one attempt. It closes a connection that nobody waits for any more.
func (c *Config) try(ctx context.Context, endpoint string, attempts chan<- attempt) {
	conn, err := c.handshake(ctx, endpoint)
	if err != nil {
		err = fmt.Errorf("%s: %w", endpoint, err)
	}
	select {
	case attempts <- attempt{conn, err}:
	case <-ctx.Done():
		if err == nil {
			conn.NetConn().Close()
		}
	}
}

func (c *Config) handshake(ctx context.Context, endpoint string) (*tls.Conn, error) {
	dial := c.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	raw, err := dial(ctx, "tcp", endpoint)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(&batchingConn{Conn: raw}, c.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}
