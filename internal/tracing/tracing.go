// Package tracing records each finished call as an OpenTelemetry span with a child for each stage, and its duration as a metric, by the
// names of the semantic conventions for generative AI. The parent is the span that the call's annotations name.
//
// Spans hold names, reasons and times: no command, no output, no variable, unless Options say so. What exports them is the package otlp.
package tracing

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	// The last version with names for generative AI: newer ones leave them to a repository without a Go module.
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/otlp"
)

const (
	// maxContent bounds the arguments and the result in a span, in bytes each.
	maxContent = 4 << 10
	// otherTool is the name of the tool of a call that ended before it was known: OpenTelemetry's word for that.
	otherTool = "_OTHER"
)

// Options say what spans hold besides names.
type Options struct {
	// Arguments has spans hold the command, the source or the arguments of a call, Results what it wrote. Both are often secret.
	Arguments, Results bool
}

// Tracer records calls. A nil Tracer records nothing.
type Tracer struct {
	options  Options
	tracer   trace.Tracer
	duration metric.Float64Histogram
}

// New returns what records calls with these providers.
func New(traces trace.TracerProvider, metrics metric.MeterProvider, o Options) (*Tracer, error) {
	duration, err := metrics.Meter(otlp.Scope).Float64Histogram("gen_ai.execute_tool.duration",
		metric.WithUnit("s"), metric.WithDescription("The duration of a single tool execution."),
		metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	if err != nil {
		return nil, fmt.Errorf("make the metric of calls: %w", err)
	}
	return &Tracer{options: o, tracer: traces.Tracer(otlp.Scope, trace.WithSchemaURL(semconv.SchemaURL)), duration: duration}, nil
}

// RecordCall records a call that ended. program is the name of the program that was started for it, empty for none. created is when
// the call was created, as the operator saw it.
func (t *Tracer) RecordCall(call *v1alpha1.ToolCall, program string, created, ended time.Time) {
	if t == nil {
		return
	}
	about := describe(call)
	ctx, span := t.tracer.Start(parentOf(call), "execute_tool "+toolOf(call), trace.WithTimestamp(created),
		trace.WithAttributes(semconv.GenAIOperationNameExecuteTool), trace.WithAttributes(about...))
	t.duration.Record(ctx, max(ended.Sub(created), 0).Seconds(), metric.WithAttributes(measured(call, about)...))
	if span.IsRecording() {
		span.SetAttributes(details(call, program)...)
		span.SetAttributes(t.content(call)...)
		t.recordStages(ctx, call, created)
	}
	if isError(call) {
		span.SetStatus(codes.Error, call.Status.Reason)
	}
	span.End(trace.WithTimestamp(ended))
}

// parentOf has the span that the call's creator named.
func parentOf(call *v1alpha1.ToolCall) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": call.Annotations[v1alpha1.AnnotationTraceParent],
		"tracestate":  call.Annotations[v1alpha1.AnnotationTraceState],
	})
}

// toolOf is the name that was checked against the rights to use tools.
func toolOf(call *v1alpha1.ToolCall) string {
	if call.Status.Action == nil {
		return otherTool
	}
	return cmp.Or(call.Status.Action.Tool, otherTool)
}

// isError says that the call didn't do what it was made for: for whoever cancels a call, it didn't either.
func isError(call *v1alpha1.ToolCall) bool { return call.Status.Phase != v1alpha1.PhaseSucceeded }

// describe is what the span and the metric have in common. To the agent every tool is a function: it makes the arguments, and somebody
// else runs it.
func describe(call *v1alpha1.ToolCall) []attribute.KeyValue {
	list := []attribute.KeyValue{semconv.GenAIToolName(toolOf(call)), semconv.GenAIToolType("function")}
	if isError(call) {
		list = append(list, semconv.ErrorTypeKey.String(cmp.Or(call.Status.Reason, otherTool)))
	}
	return list
}

// measured is what the metric says: the tool of a call that wasn't accepted is any text of its creator, and each would be a series.
func measured(call *v1alpha1.ToolCall, about []attribute.KeyValue) []attribute.KeyValue {
	if meta.IsStatusConditionTrue(call.Status.Conditions, v1alpha1.ConditionAccepted) {
		return about
	}
	return append(slices.Clone(about), semconv.GenAIToolName(otherTool))
}

// details are the attributes of the span alone.
func details(call *v1alpha1.ToolCall, program string) []attribute.KeyValue {
	s := &call.Status
	list := []attribute.KeyValue{
		semconv.GenAIToolCallID(string(call.UID)),
		semconv.K8SNamespaceName(call.Namespace),
		attribute.String("toolcall.name", call.Name),
		attribute.String("toolcall.phase", string(s.Phase)),
		attribute.String("toolcall.reason", s.Reason),
	}
	if s.Timings != nil {
		list = append(list, attribute.String("toolcall.path", string(s.Timings.Path)))
	}
	if session := s.Session; session != nil {
		list = append(list, attribute.String("toolcall.session", session.Name), attribute.Int("toolcall.session.incarnation", int(session.Incarnation)))
	}
	if s.Pod != "" {
		list = append(list, semconv.K8SPodName(s.Pod), semconv.K8SNodeName(s.Node))
	}
	if program != "" {
		list = append(list, semconv.ProcessExecutableName(program))
	}
	if s.ExitCode != nil {
		list = append(list, semconv.ProcessExitCode(int(*s.ExitCode)))
	}
	return list
}

// content is what the call was given and what it wrote, as far as the options want it in spans. A call with much input isn't in the
// operator's memory whole: it has no arguments here.
func (t *Tracer) content(call *v1alpha1.ToolCall) []attribute.KeyValue {
	var list []attribute.KeyValue
	if arguments := argumentsOf(&call.Spec); t.options.Arguments && arguments != "" {
		list = append(list, semconv.GenAIToolCallArgumentsKey.String(bounds.Text(arguments, maxContent)))
	}
	if t.options.Results && call.Status.Output != "" {
		list = append(list, semconv.GenAIToolCallResultKey.String(bounds.Text(call.Status.Output, maxContent)))
	}
	return list
}

// argumentsOf is the action of a call as JSON; empty for a call without one.
func argumentsOf(s *v1alpha1.ToolCallSpec) string {
	var action any
	switch {
	case s.Structured != nil:
		action = s.Structured
	case s.Shell != nil:
		action = s.Shell
	case s.Code != nil:
		action = s.Code
	case s.File != nil:
		action = s.File
	case s.Tool != nil && s.Tool.Arguments != nil:
		action = s.Tool.Arguments
	default:
		return ""
	}
	encoded, err := json.Marshal(action)
	if err != nil {
		return ""
	}
	return string(encoded)
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
