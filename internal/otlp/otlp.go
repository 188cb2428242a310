// Package otlp exports spans, metrics and log records to an OpenTelemetry collector, by OTLP over HTTP.
//
// Input is the environment: the variables OTEL_* of the OpenTelemetry specification say where to export to, and how. Without an
// endpoint for a signal nothing is recorded. Invariants: nobody who records waits for the collector, memory is bounded whether it
// answers or not, and what isn't exported is counted. The package knows nothing of calls: internal/tracing and what keeps audit
// records do.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"
)

// Scope names this project as the source of spans, metrics and log records.
const Scope = "toolcall.dev/operator"

// Signal is a kind of telemetry.
type Signal string

// Signals.
const (
	Traces  Signal = "traces"
	Metrics Signal = "metrics"
	Logs    Signal = "logs"
)

const (
	// maxSeries bounds the series of each metric: names of tools are labels of some. What comes later is one series.
	maxSeries = 1000
	// errorInterval bounds how often a collector that doesn't answer is logged.
	errorInterval = time.Minute
)

// Options say who exports what.
type Options struct {
	// Service is the service.name and Version the service.version of the resource. OTEL_SERVICE_NAME and
	// OTEL_RESOURCE_ATTRIBUTES have precedence.
	Service, Version string
	// Signals are those that the program makes.
	Signals []Signal
	// Lost counts what was not exported: spans, records, or exports of metrics.
	Lost func(signal Signal, n int)
	// Log receives the errors of exports, at most one in a minute.
	Log func(error)
}

// Export makes telemetry and exports it. What has no endpoint is recorded nowhere.
type Export struct {
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider
	// logs is nil without an endpoint.
	logs *sdklog.LoggerProvider
	stop []func(context.Context) error
}

// New sets up the export of each signal that has an endpoint in the environment.
func New(ctx context.Context, getenv func(string) string, o Options) (*Export, error) {
	e := &Export{Traces: nooptrace.NewTracerProvider(), Metrics: noopmetric.NewMeterProvider()}
	about, err := resourceOf(ctx, &o)
	if err != nil {
		return nil, err
	}
	add := map[Signal]func(context.Context, *destination, *resource.Resource) error{
		Traces: e.addTraces, Metrics: e.addMetrics, Logs: e.addLogs,
	}
	for _, signal := range o.Signals {
		to, err := destinationOf(getenv, signal)
		if err != nil {
			return nil, errors.Join(err, e.Shutdown(ctx))
		}
		if to.url == "" {
			continue
		}
		to.lost = o.Lost
		if err := add[signal](ctx, to, about); err != nil {
			return nil, errors.Join(fmt.Errorf("make the exporter of %s: %w", signal, err), e.Shutdown(ctx))
		}
	}
	if len(e.stop) > 0 {
		sometimes := rate.Sometimes{First: 1, Interval: errorInterval}
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { sometimes.Do(func() { o.Log(err) }) }))
	}
	return e, nil
}

// Shutdown exports what waits, until the context ends. A nil Export has nothing.
func (e *Export) Shutdown(ctx context.Context) error {
	if e == nil {
		return nil
	}
	failures := make([]error, len(e.stop))
	var all sync.WaitGroup
	for i, stop := range e.stop {
		all.Go(func() { failures[i] = stop(ctx) })
	}
	all.Wait()
	return errors.Join(failures...)
}

// resourceOf describes this process. Each replica is an instance of the service.
func resourceOf(ctx context.Context, o *Options) (*resource.Resource, error) {
	attributes := []resource.Option{
		resource.WithTelemetrySDK(), resource.WithAttributes(semconv.ServiceName(o.Service), semconv.ServiceVersion(o.Version)),
	}
	if host, err := os.Hostname(); err == nil {
		attributes = append(attributes, resource.WithAttributes(semconv.ServiceInstanceID(host)))
	}
	about, err := resource.New(ctx, append(attributes, resource.WithFromEnv())...)
	if err != nil {
		return nil, fmt.Errorf("describe this process: %w", err)
	}
	return about, nil
}

func (e *Export) addTraces(ctx context.Context, to *destination, about *resource.Resource) error {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to.url))
	if err != nil {
		return err
	}
	q := &queue{destination: to}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithSpanProcessor(&spanProcessor{
		SpanProcessor: sdktrace.NewBatchSpanProcessor(countedSpans{exporter, q}, sdktrace.WithMaxQueueSize(int(q.limit))), queue: q,
	}))
	e.Traces, e.stop = provider, append(e.stop, provider.Shutdown)
	return nil
}

func (e *Export) addMetrics(ctx context.Context, to *destination, about *resource.Resource) error {
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(to.url))
	if err != nil {
		return err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(about), sdkmetric.WithCardinalityLimit(maxSeries),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(countedMetrics{exporter, to})))
	e.Metrics, e.stop = provider, append(e.stop, provider.Shutdown)
	return nil
}

func (e *Export) addLogs(ctx context.Context, to *destination, about *resource.Resource) error {
	exporter, err := otlploghttp.New(ctx, otlploghttp.WithEndpointURL(to.url))
	if err != nil {
		return err
	}
	q := &queue{destination: to}
	e.logs = sdklog.NewLoggerProvider(sdklog.WithResource(about), sdklog.WithProcessor(&recordProcessor{
		Processor: sdklog.NewBatchProcessor(countedRecords{exporter, q}, sdklog.WithMaxQueueSize(int(q.limit))), queue: q,
	}))
	e.stop = append(e.stop, e.logs.Shutdown)
	return nil
}
