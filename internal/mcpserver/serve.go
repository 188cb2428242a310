package mcpserver

import (
	"context"
	"log/slog"
	"net"
	"net/http"
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
	server := &http.Server{
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnContext: limits.WithConnection,
		// Anybody who can connect could fill the log otherwise.
		ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	return conf.Run(ctx, &serving.Server{
		Users: "agents", HTTP: server, Log: s.options.Log,
		Handler: func(ctx context.Context) (http.Handler, error) { return s.Handler(ctx, conf) },
		Limit: func(l net.Listener) net.Listener {
			return limits.NewConnections(l, conf.sources(), conf.MaxConnections, conf.MaxConnectionsPerAddress)
		},
		LimitHealth: func(l net.Listener) net.Listener {
			return limits.NewConnections(l, &limits.Sources{}, maxHealthConnections, maxHealthConnectionsPerAddress)
		},
		Metrics: promhttp.HandlerFor(s.options.Metrics.Registry, promhttp.HandlerOpts{}),
		Stop:    func() error { return conf.drain(s, server) },
	})
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
