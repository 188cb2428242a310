package mcpserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// stopTimeout is how long calls that were cancelled may take to end when the server does.
	stopTimeout = cancelTimeout + endTimeout
)

// Serve listens, and serves agents until the context ends. Then calls have the drain time to end by themselves;
// those that haven't are cancelled, and answered.
func Serve(ctx context.Context, o *HTTPOptions, s *Server, endpoint Endpoint) error {
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	defer listener.Close()
	health, err := net.Listen("tcp", o.HealthAddress)
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	defer health.Close()
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	server, secured, err := o.newServer(ctx, s.Handler(ctx, endpoint), listener, cancel)
	if err != nil {
		return err
	}
	// Whoever can connect could fill the log otherwise.
	server.ErrorLog = slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug)
	ready := &atomic.Bool{}
	ready.Store(true)
	checks := newHealthServer(s.options.Metrics, ready)
	go func() { cancel(checks.Serve(health)) }()
	go func() { cancel(server.Serve(secured)) }()
	s.options.Log.Info("serving agents", "address", listener.Addr().String(), "health", health.Addr().String(), "tls", o.CertFile != "")

	<-ctx.Done()
	ready.Store(false)
	err = o.drain(s, server)
	_ = checks.Close()
	if asked.Err() == nil {
		return fmt.Errorf("serve: %w", context.Cause(ctx))
	}
	return err
}

// newServer makes the HTTP server, and puts TLS before the listener if there is a certificate.
func (o *HTTPOptions) newServer(ctx context.Context, handler http.Handler, l net.Listener, failed context.CancelCauseFunc) (*http.Server, net.Listener, error) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	if o.CertFile == "" {
		return server, l, nil
	}
	watcher, err := certwatcher.New(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read the certificate: %w", err)
	}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			failed(fmt.Errorf("watch the certificate: %w", err))
		}
	}()
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate, NextProtos: []string{"h2", "http/1.1"}}
	server.TLSConfig = conf
	return server, tls.NewListener(l, conf), nil
}

// drain ends the server: nothing new is taken, what runs may end, then it is cancelled.
func (o *HTTPOptions) drain(s *Server, server *http.Server) error {
	s.options.Log.Info("shutting down", "drain", o.DrainTimeout.String())
	draining, cancel := context.WithTimeout(context.Background(), o.DrainTimeout)
	defer cancel()
	err := server.Shutdown(draining)
	s.Stop()
	if waited := s.Wait(stopTimeout); waited != nil {
		return waited
	}
	if err == nil {
		return nil
	}
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(closing) != nil {
		return server.Close()
	}
	return nil
}

func newHealthServer(m *Metrics, ready *atomic.Bool) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
}
