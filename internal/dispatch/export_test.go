package dispatch

import (
	"context"
	"net"
	"time"
)

// Bounds that tests of the whole server count with.
const (
	MaxUnauthenticatedPerSource = maxUnauthenticatedPerSource
	HelloTimeout                = helloTimeout
	IdleTimeout                 = idleTimeout
	ResultTimeout               = resultTimeout
	PingBurst                   = pingBurst
)

// Limits are what a test sets otherwise than a Server does; zero is as a Server does.
type Limits struct {
	HelloTimeout                   time.Duration
	ResultBytes, BytesPerNamespace int64
}

// ServeWith is Serve with other limits.
func (s *Server) ServeWith(ctx context.Context, listener net.Listener, l Limits) error {
	a := newAcceptor(s)
	if l.HelloTimeout > 0 {
		a.helloTimeout = l.HelloTimeout
	}
	if l.ResultBytes > 0 {
		a.results = newResultBudget(l.ResultBytes, l.BytesPerNamespace)
	}
	return a.serve(ctx, listener)
}
