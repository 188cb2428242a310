package console

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"toolcall.dev/operator/internal/serving"
	"toolcall.dev/operator/internal/serving/limits"
)

const (
	// maxHeaderBytes is enough for the longest token.
	maxHeaderBytes = 20 << 10
	// maxStreamsPerConnection bounds the requests at the same time on an HTTP/2 connection.
	maxStreamsPerConnection = 64
	// stopTimeout bounds how long requests may take to end when the server stops.
	stopTimeout = 5 * time.Second
)

// Serve listens and serves browsers until the context ends.
func Serve(ctx context.Context, o *Options, log *slog.Logger) error {
	server := o.newServer()
	return o.Run(ctx, &serving.Server{
		Users: "browsers", HTTP: server, Log: log,
		Handler: func(ctx context.Context) (http.Handler, error) { return NewHandler(ctx, o, o.API(), log) },
		// Behind a proxy, all connections come from one address.
		MaxConnections: o.MaxConnections, MaxPerSource: o.MaxConnections, Sources: &limits.Sources{},
		Stop: func() error {
			stopping, stopped := context.WithTimeout(context.Background(), stopTimeout)
			defer stopped()
			if server.Shutdown(stopping) != nil {
				_ = server.Close()
			}
			return nil
		},
	})
}

// newServer returns the HTTP server, without its handler.
func (o *Options) newServer() *http.Server {
	timeout := o.timeouts().write
	return &http.Server{
		ReadHeaderTimeout: serving.HeaderTimeout, WriteTimeout: timeout, MaxHeaderBytes: maxHeaderBytes,
		// The end of a stream's time is written to the connection as well, so it ends nothing while that write is blocked.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreamsPerConnection, WriteByteTimeout: timeout, SendPingTimeout: pingInterval, PingTimeout: timeout,
		},
	}
}
