package console

import (
	"context"
	"crypto/tls"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxHeaderBytes is enough for the longest token.
	maxHeaderBytes = 20 << 10
	// maxStreamsPerConnection bounds the requests at the same time on an HTTP/2 connection.
	maxStreamsPerConnection = 64
	maxHealthConnections    = 64
	// stopTimeout bounds how long requests may take to end when the server stops.
	stopTimeout = 5 * time.Second
)

// Serve listens and serves browsers until the context ends.
func Serve(ctx context.Context, o *Options, log *slog.Logger) error {
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
	}
	defer listener.Close()
	health, err := net.Listen("tcp", o.HealthAddress)
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	defer health.Close()
	requested := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	handler, err := NewHandler(ctx, o, o.API(), log)
	if err != nil {
		return err
	}
	server, secured, err := o.newServer(ctx, handler, netutil.LimitListener(listener, o.MaxConnections),
		func(watch func() error) { running.Go(func() { cancel(watch()) }) })
	if err != nil {
		return err
	}
	server.ErrorLog = stdlog.New(newErrorLog(log), "", 0)
	ready := &atomic.Bool{}
	ready.Store(true)
	checks := newHealthServer(ready)
	checks.ErrorLog = server.ErrorLog
	running.Go(func() { cancel(checks.Serve(netutil.LimitListener(health, maxHealthConnections))) })
	running.Go(func() { cancel(server.Serve(secured)) })
	log.Info("serving browsers", "address", listener.Addr().String(), "health", health.Addr().String(), "tls", o.CertFile != "")

	<-ctx.Done()
	ready.Store(false)
	stopping, stopped := context.WithTimeout(context.Background(), stopTimeout)
	defer stopped()
	if server.Shutdown(stopping) != nil {
		_ = server.Close()
	}
	_ = checks.Close()
	if requested.Err() == nil {
		return fmt.Errorf("serve: %w", context.Cause(ctx))
	}
	return nil
}

// newServer returns the HTTP server, and its listener with TLS if there is a certificate. It passes the function that reloads the
// certificate to start.
func (o *Options) newServer(ctx context.Context, handler http.Handler, l net.Listener, start func(func() error)) (*http.Server, net.Listener, error) {
	timeout := o.timeouts().write
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, WriteTimeout: timeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		// The end of a stream's time is written to the connection as well, so it ends nothing while that write is blocked.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreamsPerConnection, WriteByteTimeout: timeout, SendPingTimeout: pingInterval, PingTimeout: timeout,
		},
	}
	if o.CertFile == "" {
		return server, l, nil
	}
	watcher, err := certwatcher.New(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read the certificate: %w", err)
	}
	start(func() error {
		if err := watcher.Start(ctx); err != nil {
			return fmt.Errorf("watch the certificate: %w", err)
		}
		return nil
	})
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate, NextProtos: []string{"h2", "http/1.1"}}
	server.TLSConfig = conf
	return server, tls.NewListener(l, conf), nil
}

func newHealthServer(ready *atomic.Bool) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, IdleTimeout: headerTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
}
