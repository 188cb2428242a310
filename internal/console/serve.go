package console

import (
	"context"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
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
	// stopTimeout bounds how long requests may take to end when the server stops.
	stopTimeout = 5 * time.Second
)

// Serve listens and serves browsers until the context ends.
func Serve(ctx context.Context, o *Options, log *slog.Logger) error {
	server := o.newServer()
	server.ErrorLog = stdlog.New(newErrorLog(log), "", 0)
	return o.Run(ctx, &serving.Server{
		Users: "browsers", HTTP: server, Log: log,
		Handler: func(ctx context.Context) (http.Handler, error) { return NewHandler(ctx, o, o.API(), log) },
		Limit:   func(l net.Listener) net.Listener { return netutil.LimitListener(l, o.MaxConnections) },
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
		ReadHeaderTimeout: headerTimeout, WriteTimeout: timeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// The end of a stream's time is written to the connection as well, so it ends nothing while that write is blocked.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreamsPerConnection, WriteByteTimeout: timeout, SendPingTimeout: pingInterval, PingTimeout: timeout,
		},
	}
}
