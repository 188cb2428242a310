package tracing_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/tracing"
)

func finishedCall(annotations map[string]string) *v1alpha1.ToolCall {
	start := metav1.NewMicroTime(time.Unix(100, 0))
	end := metav1.NewMicroTime(time.Unix(101, 0))
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Annotations: annotations},
		Status: v1alpha1.ToolCallStatus{
			Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(1)),
			StartTime: &start, CompletionTime: &end,
			Timings: &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(2)), StartedMilliseconds: ptr.To(int64(5)), Path: v1alpha1.PathWarm},
		},
	}
}

func record(call *v1alpha1.ToolCall) tracetest.SpanStubs {
	exporter := tracetest.NewInMemoryExporter()
	tracer := tracing.New(sdktrace.WithSyncer(exporter))
	tracer.RecordCall(call, time.Unix(99, 0), time.Unix(102, 0))
	return exporter.GetSpans()
}

func TestACallIsASpanWithItsStages(t *testing.T) {
	t.Parallel()
	spans := map[string]tracetest.SpanStub{}
	for _, span := range record(finishedCall(nil)) {
		spans[span.Name] = span
	}
	call, ok := spans["toolcall"]
	if !ok || len(spans) != 4 {
		t.Fatalf("spans: %v", spans)
	}
	if call.Status.Description != v1alpha1.ReasonNonZeroExit || !call.StartTime.Equal(time.Unix(99, 0)) || !call.EndTime.Equal(time.Unix(102, 0)) {
		t.Errorf("the call's span: %+v", call)
	}
	for _, name := range []string{"accept", "start", "process"} {
		if spans[name].Parent.SpanID() != call.SpanContext.SpanID() {
			t.Errorf("%s isn't a child of the call", name)
		}
	}
	if got := spans["start"].EndTime.Sub(spans["accept"].StartTime); got != 5*time.Millisecond {
		t.Errorf("acceptance and start take %s", got)
	}
}

// attributesOf are those of the call's own span.
func attributesOf(call *v1alpha1.ToolCall) map[attribute.Key]attribute.Value {
	attributes := map[attribute.Key]attribute.Value{}
	for _, span := range record(call) {
		if span.Name != "toolcall" {
			continue
		}
		for _, a := range span.Attributes {
			attributes[a.Key] = a.Value
		}
	}
	return attributes
}

func TestACallInASessionSaysWhichOneAndInWhichOfItsPods(t *testing.T) {
	t.Parallel()
	call := finishedCall(nil)
	call.Status.Timings.Path = v1alpha1.PathSession
	call.Status.Session = &v1alpha1.CallSessionStatus{Name: "work", Incarnation: 2, Sequence: 7}
	got := attributesOf(call)
	if name := got["toolcall.session"].AsString(); name != "work" {
		t.Errorf("the session is %q", name)
	}
	if n := got["toolcall.session.incarnation"].AsInt64(); n != 2 {
		t.Errorf("the incarnation is %d", n)
	}
	if path := got["toolcall.path"].AsString(); path != string(v1alpha1.PathSession) {
		t.Errorf("the path is %q", path)
	}
	if _, has := attributesOf(finishedCall(nil))["toolcall.session"]; has {
		t.Error("a call without a session names one")
	}
}

func TestACallJoinsItsCallersTrace(t *testing.T) {
	t.Parallel()
	spans := record(finishedCall(map[string]string{v1alpha1.AnnotationTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}))
	for _, span := range spans {
		if span.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is in trace %s", span.Name, span.SpanContext.TraceID())
		}
		if span.Name == "toolcall" && span.Parent.SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("the parent is %s", span.Parent.SpanID())
		}
	}
}

func TestABrokenContextIsIgnored(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "00-0-0-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"} {
		if spans := record(finishedCall(map[string]string{v1alpha1.AnnotationTraceParent: text})); len(spans) != 4 {
			t.Errorf("%q: %d spans", text, len(spans))
		}
	}
}

func TestTracingIsOffUnlessConfigured(t *testing.T) {
	t.Parallel()
	tracer, err := tracing.FromEnv(context.Background(), func(string) string { return "" })
	if tracer != nil || err != nil {
		t.Errorf("got %v, %v", tracer, err)
	}
	tracer.RecordCall(finishedCall(nil), time.Now(), time.Now())
	if err := tracer.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
