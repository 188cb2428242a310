// Package tracing turns a finished call into an OpenTelemetry span with its stages, joined to the span of the
// caller that the call's annotation names. It is off, and costs nothing, unless an OTLP endpoint is configured.
//
// It records names, reasons and times: no command, no output, no variable.
package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"toolcall.dev/operator/api/v1alpha1"
)

// Tracer makes spans of calls. A nil Tracer makes none.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// FromEnv makes a tracer that exports by OTLP over HTTP when one of the variables OTEL_EXPORTER_OTLP_ENDPOINT and
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, and nil otherwise. The exporter reads the other OTEL_ variables of
// the OpenTelemetry specification itself.
func FromEnv(ctx context.Context, getenv func(string) string) (*Tracer, error) {
	if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	return New(sdktrace.WithBatcher(exporter)), nil
}

// New makes a tracer with the options of its provider.
func New(options ...sdktrace.TracerProviderOption) *Tracer {
	service := resource.NewSchemaless(attribute.String("service.name", "toolcall-operator"))
	provider := sdktrace.NewTracerProvider(append([]sdktrace.TracerProviderOption{sdktrace.WithResource(service)}, options...)...)
	return &Tracer{provider: provider, tracer: provider.Tracer("toolcall.dev/operator")}
}

// Shutdown sends what is left.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Finished makes the span of a call that ended, from its creation as the operator saw it to its end.
func (t *Tracer) Finished(call *v1alpha1.ToolCall, created, ended time.Time) {
	if t == nil {
		return
	}
	parent := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": call.Annotations[v1alpha1.AnnotationTraceParent],
		"tracestate":  call.Annotations[v1alpha1.AnnotationTraceState],
	})
	ctx, span := t.tracer.Start(parent, "toolcall", trace.WithTimestamp(created), trace.WithAttributes(attributes(call)...))
	t.stages(ctx, call, created)
	if call.Status.Phase == v1alpha1.PhaseFailed || call.Status.Phase == v1alpha1.PhaseDenied {
		span.SetStatus(codes.Error, call.Status.Reason)
	}
	span.End(trace.WithTimestamp(ended))
}

func attributes(call *v1alpha1.ToolCall) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("k8s.namespace.name", call.Namespace),
		attribute.String("toolcall.name", call.Name),
		attribute.String("toolcall.uid", string(call.UID)),
		attribute.String("toolcall.phase", string(call.Status.Phase)),
		attribute.String("toolcall.reason", call.Status.Reason),
	}
	if call.Status.Timings != nil {
		list = append(list, attribute.String("toolcall.path", string(call.Status.Timings.Path)))
	}
	if call.Status.Pod != "" {
		list = append(list, attribute.String("k8s.pod.name", call.Status.Pod), attribute.String("k8s.node.name", call.Status.Node))
	}
	if call.Status.ExitCode != nil {
		list = append(list, attribute.Int("process.exit.code", int(*call.Status.ExitCode)))
	}
	return list
}

// stages makes a child for each part of the way: until the guards had passed, until the runner was recorded, the
// process itself by the clock of its node.
func (t *Tracer) stages(ctx context.Context, call *v1alpha1.ToolCall, created time.Time) {
	from := created
	child := func(name string, start, end time.Time) {
		_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(start))
		span.End(trace.WithTimestamp(end))
	}
	if timings := call.Status.Timings; timings != nil {
		for _, stage := range []struct {
			name string
			ms   *int64
		}{{"accept", timings.AcceptedMilliseconds}, {"start", timings.StartedMilliseconds}} {
			if stage.ms != nil {
				until := created.Add(time.Duration(*stage.ms) * time.Millisecond)
				child(stage.name, from, until)
				from = until
			}
		}
	}
	if call.Status.StartTime != nil && call.Status.CompletionTime != nil {
		child("process", call.Status.StartTime.Time, call.Status.CompletionTime.Time)
	}
}
