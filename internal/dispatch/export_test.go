package dispatch

import (
	"context"
	"net"
	"time"

	"toolcall.dev/operator/internal/fair"
)

// Bounds that tests of the whole server count with.
const (
	MaxUnauthenticatedPerSource = maxUnauthenticatedPerSource
	HelloTimeout                = helloTimeout
	IdleTimeout                 = idleTimeout
	ResultGrace                 = resultGrace
	MinResultRate               = minResultRate
	SmallResult                 = smallResult
	PingBurst                   = pingBurst
	SweepInterval               = sweepInterval
	MaxQueuedBytes              = maxQueuedBytes
)

// Limits are what a test sets otherwise than a Server does, ResultBytes those of large results; zero is as a Server does.
type Limits struct {
	HelloTimeout                   time.Duration
	ResultBytes, BytesPerNamespace int64
	SmallResultBytes               int64
	DecisionBytes                  int64
	RunnersPerSource, Runners      int
	Records                        *Records
}

// ServeWith is Serve with other limits.
func (s *Server) ServeWith(ctx context.Context, listener net.Listener, l Limits) error {
	if l.Records != nil {
		s.Records = l.Records
	}
	a, err := newAcceptor(s)
	if err != nil {
		return err
	}
	if l.HelloTimeout > 0 {
		a.helloTimeout = l.HelloTimeout
	}
	if l.ResultBytes > 0 {
		a.results.large = fair.NewTurns[string](l.ResultBytes, l.BytesPerNamespace)
	}
	if l.SmallResultBytes > 0 {
		a.results.small = fair.NewTurns[string](l.SmallResultBytes, l.SmallResultBytes)
	}
	if l.DecisionBytes > 0 {
		a.results.decisions = fair.NewCounter[string](l.DecisionBytes, l.DecisionBytes/2)
	}
	if l.Runners > 0 {
		a.runners = newQuota(l.Runners, l.Runners, l.Runners)
	}
	if l.RunnersPerSource > 0 {
		a.runners = newQuota(maxRunners, l.RunnersPerSource, maxRunnersPerNamespace)
	}
	return a.serve(ctx, listener)
}
