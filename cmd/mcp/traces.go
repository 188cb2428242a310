package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"toolcall.dev/operator/internal/mcpserver"
	"toolcall.dev/operator/internal/otlp"
	"toolcall.dev/operator/internal/version"
)

// shutdownTimeout is how long the last spans may take to leave.
const shutdownTimeout = 5 * time.Second

// newExport exports the spans of requests where the environment names an OTLP endpoint.
func newExport(ctx context.Context, log *slog.Logger, metrics *mcpserver.Metrics) (*otlp.Export, error) {
	return otlp.New(ctx, os.Getenv, otlp.Options{
		Service: "toolcall-mcp", Version: version.String(), Signals: []otlp.Signal{otlp.Traces},
		Lost: func(signal otlp.Signal, n int) { metrics.CountLostTelemetry(string(signal), n) },
		Log:  func(err error) { log.Warn("telemetry was not exported", "error", err.Error()) },
	})
}

// shutdown exports the last spans, for a limited time.
func shutdown(export *otlp.Export) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	_ = export.Shutdown(ctx)
}
