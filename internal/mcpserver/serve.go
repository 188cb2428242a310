package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/util/wait"

	"toolcall.dev/operator/internal/serving"
)

const (
	maxHeaderBytes = 64 << 10
	// stopTimeout bounds how long cancelled calls may take to finish when the server stops.
	stopTimeout = cancelTimeout + finishTimeout
	// checkInterval is how long the server waits until it asks again whether it may act for its callers.
	checkInterval = 5 * time.Second
)

// Serve listens and serves agents until the context ends. Then running calls may finish within the drain timeout; the
// server cancels the rest and answers their requests.
func Serve(ctx context.Context, s *Server, conf Endpoint) error {
	r, err := conf.reviewer()
	if err != nil {
		return err
	}
	checks := newChecks(r, s.options.Log)
	server := &http.Server{ReadHeaderTimeout: serving.HeaderTimeout, MaxHeaderBytes: maxHeaderBytes}
	return conf.Run(ctx, &serving.Server{
		Users: "agents", HTTP: server, Log: s.options.Log,
		Handler: func(ctx context.Context) (http.Handler, error) {
			go checks.run(ctx)
			return s.newEndpoint(ctx, conf, r), nil
		},
		Ready:          checks.result,
		MaxConnections: conf.MaxConnections, MaxPerSource: conf.MaxConnectionsPerAddress, Sources: conf.sources(),
		Metrics: promhttp.HandlerFor(s.options.Metrics.Registry, promhttp.HandlerOpts{}),
		Stop:    func() error { return conf.drain(s, server) },
	})
}

// checks says whether the server can act for its callers.
type checks struct {
	reviewer reviewer
	log      *slog.Logger
	failed   atomic.Pointer[error]
}

var errChecking = errors.New("the API server has not said yet whether the server may act for its callers")

func newChecks(r reviewer, log *slog.Logger) *checks {
	c := &checks{reviewer: r, log: log}
	c.failed.Store(&errChecking)
	return c
}

// run checks until that succeeds. Later failures are those of single requests.
func (c *checks) run(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		err := c.reviewer.Check(ctx)
		if err != nil {
			c.log.Error("the server isn't ready", "error", err.Error())
		}
		c.failed.Store(&err)
		return err == nil, nil
	})
}

// result returns why the server isn't ready.
func (c *checks) result() error { return *c.failed.Load() }

// answerTimeout is how long calls that are cancelled when the server ends may take to be answered.
const answerTimeout = 5 * time.Second

// drain stops the server: it accepts no new requests, lets running calls finish, then cancels the rest.
func (o *HTTPOptions) drain(s *Server, server *http.Server) error {
	s.options.Log.Info("shutting down", "drain", o.DrainTimeout.String())
	draining, cancel := context.WithTimeout(context.Background(), o.DrainTimeout)
	defer cancel()
	err := server.Shutdown(draining)
	if closeErr := s.Close(); closeErr != nil {
		return closeErr
	}
	if err == nil {
		return nil
	}
	closing, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if server.Shutdown(closing) != nil {
		return server.Close()
	}
	return nil
}
