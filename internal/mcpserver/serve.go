package mcpserver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"toolcall.dev/operator/internal/mcpserver/limits"
	"toolcall.dev/operator/internal/serving"
)

const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// stopTimeout bounds how long cancelled calls may take to finish when the server stops.
	stopTimeout = cancelTimeout + finishTimeout
	// maxHealthConnections and maxHealthConnectionsPerAddress bound the connections for health checks and metrics.
	maxHealthConnections           = 64
	maxHealthConnectionsPerAddress = 16
)

// Serve listens and serves agents until the context ends. Then running calls may finish within the drain timeout; the
// server cancels the rest and answers their requests.
func Serve(ctx context.Context, s *Server, conf Endpoint) error {
	o := &conf.HTTPOptions
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	defer listener.Close()
	health, err := listen.Listen(ctx, "tcp", o.HealthAddress)
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	defer health.Close()
	requested := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	handler, err := s.Handler(ctx, conf)
	if err != nil {
		return err
	}
	limited := limits.NewConnections(listener, o.sources(), o.MaxConnections, o.MaxConnectionsPerAddress)
	server, secured, err := o.newServer(ctx, handler, limited, func(watch func() error) { running.Go(func() { cancel(watch()) }) })
	if err != nil {
		return err
	}
	// Anybody who can connect could fill the log otherwise.
	server.ErrorLog = slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug)
	ready := &atomic.Bool{}
	ready.Store(true)
	checks := serving.NewHealthServer(ready, promhttp.HandlerFor(s.options.Metrics.Registry, promhttp.HandlerOpts{}))
	checks.ErrorLog = server.ErrorLog
	running.Go(func() {
		cancel(checks.Serve(limits.NewConnections(health, &limits.Sources{}, maxHealthConnections, maxHealthConnectionsPerAddress)))
	})
	running.Go(func() { cancel(server.Serve(secured)) })
	s.options.Log.Info("serving agents", "address", listener.Addr().String(), "health", health.Addr().String(), "tls", o.CertFile != "")

	<-ctx.Done()
	ready.Store(false)
	err = o.drain(s, server)
	_ = checks.Close()
	if requested.Err() == nil {
		return fmt.Errorf("serve: %w", context.Cause(ctx))
	}
	return err
}

// newServer returns the HTTP server, and its listener with TLS if there is a certificate. It passes the function that
// reloads the certificate to start.
func (o *HTTPOptions) newServer(ctx context.Context, handler http.Handler, l net.Listener, start func(func() error)) (*http.Server, net.Listener, error) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ConnContext: limits.WithConnection,
	}
	l, err := o.Secure(ctx, server, l, start)
	return server, l, err
}

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
