// Package tracing exports each finished call as an OpenTelemetry span with a child for each stage. The parent is the
// span that the call's annotation names. Without an OTLP endpoint nothing is recorded.
//
// Spans hold names, reasons and times: no command, no output, no variable.
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

// Tracer records calls as spans. A nil Tracer records nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// FromEnv returns a tracer that exports by OTLP over HTTP if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, and nil otherwise. The exporter reads the other variables of the
// OpenTelemetry specification itself.
func FromEnv(ctx context.Context, getenv func(string) string) (*Tracer, error) {
	if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the trace exporter: %w", err)
	}
	return New(sdktrace.WithBatcher(exporter)), nil
}

// New returns a tracer whose provider has these options.
func New(options ...sdktrace.TracerProviderOption) *Tracer {
	service := resource.NewSchemaless(attribute.String("service.name", "toolcall-operator"))
	provider := sdktrace.NewTracerProvider(append([]sdktrace.TracerProviderOption{sdktrace.WithResource(service)}, options...)...)
	return &Tracer{provider: provider, tracer: provider.Tracer("toolcall.dev/operator")}
}

// Shutdown exports the spans that have not been sent yet.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// RecordCall records a call that ended. created is when it was created, as the operator saw it.
func (t *Tracer) RecordCall(call *v1alpha1.ToolCall, created, ended time.Time) {
	if t == nil {
		return
	}
	parent := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": call.Annotations[v1alpha1.AnnotationTraceParent],
		"tracestate":  call.Annotations[v1alpha1.AnnotationTraceState],
	})
	ctx, span := t.tracer.Start(parent, "toolcall", trace.WithTimestamp(created), trace.WithAttributes(attributes(call)...))
	t.recordStages(ctx, call, created)
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
	if session := call.Status.Session; session != nil {
		list = append(list, attribute.String("toolcall.session", session.Name), attribute.Int("toolcall.session.incarnation", int(session.Incarnation)))
	}
	if call.Status.Pod != "" {
		list = append(list, attribute.String("k8s.pod.name", call.Status.Pod), attribute.String("k8s.node.name", call.Status.Node))
	}
	if call.Status.ExitCode != nil {
		list = append(list, attribute.Int("process.exit.code", int(*call.Status.ExitCode)))
	}
	return list
}

// recordStages records a child for each stage: until the guards had passed, until the call's runner was recorded, and
// the process itself, by the clock of its node.
func (t *Tracer) recordStages(ctx context.Context, call *v1alpha1.ToolCall, created time.Time) {
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
