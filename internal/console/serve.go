package console

import (
	"context"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"toolcall.dev/operator/internal/serving"
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
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
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
	checks := serving.NewHealthServer(ready, nil)
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
	l, err := o.Secure(ctx, server, l, start)
	return server, l, err
}
