package tracing_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/otlp"
	"toolcall.dev/operator/internal/testing/otlptest"
	"toolcall.dev/operator/internal/tracing"
)

func finishedCall(changes ...func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	start := metav1.NewMicroTime(time.Unix(100, 0))
	end := metav1.NewMicroTime(time.Unix(101, 0))
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid", Annotations: map[string]string{}},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "echo secret"}},
		Status: v1alpha1.ToolCallStatus{
			Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(1)), Output: "secret",
			Action:    &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: "echo secret"},
			StartTime: &start, CompletionTime: &end,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}},
			Timings:    &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(2)), StartedMilliseconds: ptr.To(int64(5)), Path: v1alpha1.PathWarm},
		},
	}
	for _, change := range changes {
		change(call)
	}
	return call
}

func record(t *testing.T, o tracing.Options, call *v1alpha1.ToolCall) map[string]tracetest.SpanStub {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracer, err := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), noopmetric.NewMeterProvider(), o)
	if err != nil {
		t.Fatal(err)
	}
	tracer.RecordCall(call, "bash", time.Unix(99, 0), time.Unix(102, 0))
	spans := map[string]tracetest.SpanStub{}
	for _, span := range exporter.GetSpans() {
		spans[span.Name] = span
	}
	return spans
}

func attributesOf(span tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, one := range span.Attributes {
		all[string(one.Key)] = one.Value.AsInterface()
	}
	return all
}

func TestACallIsASpanWithItsStages(t *testing.T) {
	t.Parallel()
	spans := record(t, tracing.Options{}, finishedCall())
	call, ok := spans["execute_tool bash"]
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
	want := map[string]any{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash", "gen_ai.tool.type": "function", "gen_ai.tool.call.id": "uid",
		"error.type": v1alpha1.ReasonNonZeroExit, "process.executable.name": "bash", "process.exit.code": int64(1), "k8s.namespace.name": "ns",
		"toolcall.name": "c", "toolcall.phase": "Failed", "toolcall.reason": v1alpha1.ReasonNonZeroExit, "toolcall.path": "Warm",
	}
	if diff := cmp.Diff(want, attributesOf(call)); diff != "" {
		t.Error(diff)
	}
}

func TestACallThatEndedOtherwiseSaysSo(t *testing.T) {
	t.Parallel()
	for sentence, tc := range map[string]struct {
		change func(*v1alpha1.ToolCall)
		span   string
		want   map[string]any
	}{
		"a call that succeeded is no error": {
			func(c *v1alpha1.ToolCall) {
				c.Status.Phase, c.Status.Reason = v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted
			}, "execute_tool bash", map[string]any{"error.type": nil},
		},
		"a cancelled call is an error": {
			func(c *v1alpha1.ToolCall) {
				c.Status.Phase, c.Status.Reason = v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested
			}, "execute_tool bash", map[string]any{"error.type": v1alpha1.ReasonCancelRequested},
		},
		"a call whose tool isn't known doesn't name the span": {
			func(c *v1alpha1.ToolCall) {
				c.Spec = v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "rm -rf /"}}
				c.Status = v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonUnknownTool}
			}, "execute_tool _OTHER", map[string]any{"gen_ai.tool.name": "_OTHER", "error.type": v1alpha1.ReasonUnknownTool, "process.exit.code": nil},
		},
		"a call in a session names it, and which of its pods": {
			func(c *v1alpha1.ToolCall) {
				c.Status.Session = &v1alpha1.CallSessionStatus{Name: "work", Incarnation: 2, Sequence: 7}
			}, "execute_tool bash", map[string]any{"toolcall.session": "work", "toolcall.session.incarnation": int64(2)},
		},
	} {
		span, ok := record(t, tracing.Options{}, finishedCall(tc.change))[tc.span]
		got := attributesOf(span)
		maps.DeleteFunc(got, func(key string, _ any) bool { _, asked := tc.want[key]; return !asked })
		maps.DeleteFunc(tc.want, func(_ string, value any) bool { return value == nil })
		if diff := cmp.Diff(tc.want, got); diff != "" || !ok {
			t.Errorf("%s: %t %s", sentence, ok, diff)
		}
	}
}

func TestContentIsInSpansOnlyWhereItIsWanted(t *testing.T) {
	t.Parallel()
	const arguments, result = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
	both := tracing.Options{Arguments: true, Results: true}
	large := strings.Repeat("é", 1<<20)
	for sentence, tc := range map[string]struct {
		options tracing.Options
		change  func(*v1alpha1.ToolCall)
		want    map[string]any
	}{
		"by default nothing is":    {tracing.Options{}, nil, map[string]any{}},
		"arguments alone":          {tracing.Options{Arguments: true}, nil, map[string]any{arguments: `{"command":"echo secret"}`}},
		"results alone":            {tracing.Options{Results: true}, nil, map[string]any{result: "secret"}},
		"a call without its input": {both, func(c *v1alpha1.ToolCall) { c.Spec.Shell = nil }, map[string]any{result: "secret"}},
		"a model's own arguments": {both, func(c *v1alpha1.ToolCall) {
			c.Spec = v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"cmd":1}`)}}}
		}, map[string]any{arguments: `{"cmd":1}`, result: "secret"}},
		"what is large is cut": {both, func(c *v1alpha1.ToolCall) {
			c.Spec.Shell.Command, c.Status.Output = large, large
		}, map[string]any{arguments: `{"command":"` + large[:2*2039] + "…", result: large[:2*2046] + "…"}},
	} {
		got := map[string]any{}
		change := tc.change
		if change == nil {
			change = func(*v1alpha1.ToolCall) {}
		}
		for key, value := range attributesOf(record(t, tc.options, finishedCall(change))["execute_tool bash"]) {
			if key == arguments || key == result {
				got[key] = value
			} else if text, ok := value.(string); ok && strings.Contains(text, "secret") {
				t.Errorf("%s: %s is %q", sentence, key, text)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", sentence, diff)
		}
	}
}

func TestACallJoinsItsCallersTrace(t *testing.T) {
	t.Parallel()
	spans := record(t, tracing.Options{}, finishedCall(func(c *v1alpha1.ToolCall) {
		c.Annotations[v1alpha1.AnnotationTraceParent] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	}))
	for _, span := range spans {
		if span.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is in trace %s", span.Name, span.SpanContext.TraceID())
		}
	}
	if parent := spans["execute_tool bash"].Parent.SpanID().String(); parent != "b7ad6b7169203331" {
		t.Errorf("the parent is %s", parent)
	}
}

func TestABrokenContextIsIgnored(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "00-0-0-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"} {
		spans := record(t, tracing.Options{}, finishedCall(func(c *v1alpha1.ToolCall) { c.Annotations[v1alpha1.AnnotationTraceParent] = text }))
		if len(spans) != 4 {
			t.Errorf("%q: %d spans", text, len(spans))
		}
	}
}

func TestCallsReachTheCollector(t *testing.T) {
	endpoint := otlptest.Collector(t)
	export, err := otlp.New(t.Context(), endpoint.Getenv, otlp.Options{
		Service: "toolcall-operator", Version: "v1", Signals: []otlp.Signal{otlp.Traces, otlp.Metrics},
		Lost: func(signal otlp.Signal, n int) { t.Errorf("%d of %s are lost", n, signal) }, Log: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := tracing.New(export.Traces, export.Metrics, tracing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tracer.RecordCall(finishedCall(), "bash", time.Unix(99, 0), time.Unix(102, 0))
	// What was denied is named as its creator liked: all of it is one series.
	for _, name := range []string{"a", "b"} {
		denied := finishedCall(func(c *v1alpha1.ToolCall) {
			c.Status.Action.Tool, c.Status.Conditions[0].Status = name, metav1.ConditionFalse
		})
		tracer.RecordCall(denied, "", time.Unix(101, 0), time.Unix(102, 0))
	}
	if err := export.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := otlptest.Attributes(endpoint.Span(t, "execute_tool bash").GetAttributes())
	if got["gen_ai.tool.call.id"] != "uid" || got["process.exit.code"] != int64(1) {
		t.Errorf("the span has %v", got)
	}
	points := endpoint.Histogram(t, "gen_ai.execute_tool.duration")
	if len(points) == 2 && points[0].GetSum() < points[1].GetSum() {
		slices.Reverse(points)
	}
	if len(points) != 2 || points[0].GetSum() != 3 || points[1].GetSum() != 2 || len(points[0].GetExplicitBounds()) != 14 {
		t.Fatalf("the metric has %v", points)
	}
	if got := otlptest.Attributes(points[1].GetAttributes())["gen_ai.tool.name"]; got != "_OTHER" {
		t.Errorf("calls that were denied are of the tool %v", got)
	}
	want := map[string]any{"gen_ai.tool.name": "bash", "gen_ai.tool.type": "function", "error.type": v1alpha1.ReasonNonZeroExit}
	if diff := cmp.Diff(want, otlptest.Attributes(points[0].GetAttributes())); diff != "" {
		t.Error(diff)
	}
	for _, about := range endpoint.Resources() {
		if about["service.name"] != "toolcall-operator" || about["service.version"] != "v1" || about["service.instance.id"] == nil {
			t.Errorf("the resource is %v", about)
		}
	}
}

func TestNoTracerRecordsNothing(t *testing.T) {
	t.Parallel()
	var tracer *tracing.Tracer
	tracer.RecordCall(finishedCall(), "bash", time.Now(), time.Now())
}
