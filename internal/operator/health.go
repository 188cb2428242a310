package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// healthTimeout bounds the reading of a probe's request.
const healthTimeout = 5 * time.Second

// listenForHealth listens for the kubelet; nil when health checks are turned off.
func listenForHealth(ctx context.Context, address string) (net.Listener, error) {
	if address == "" || address == "0" {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	return l, nil
}

// serveHealth answers the kubelet until the context ends. A replica is alive while it waits for what the cluster lacks: a
// restart would not help, and would close the port of the aggregated API.
func serveHealth(ctx context.Context, listener net.Listener, ready healthz.Checker) error {
	mux := http.NewServeMux()
	mux.Handle("/healthz", healthz.CheckHandler{Checker: healthz.Ping})
	mux.Handle("/readyz", healthz.CheckHandler{Checker: ready})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: healthTimeout, ReadTimeout: healthTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}
