package mcpserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientParent = "00-" + clientTrace + "-b7ad6b7169203331-01"
)

// The trace context of a request becomes annotations of the call. An invalid one is left out.
func TestTraceContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	_, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Meta: mcp.Meta{"traceparent": clientParent, "tracestate": strings.Repeat("x", maxTrace+1)},
		Name: "run_command", Arguments: fields{"command": "x"},
	})
	must(t, err)
	call := f.only("created", func(*v1alpha1.ToolCall) bool { return true })
	if diff := cmp.Diff(map[string]string{v1alpha1.AnnotationTraceParent: clientParent}, call.Annotations); diff != "" {
		t.Error(diff)
	}
}

// Each request is a span by the conventions for MCP, and a call is its child.
func TestRequestsAreSpans(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return finishedStatus(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	})
	exporter := tracetest.NewInMemoryExporter()
	server := NewServer(Options{
		Requester: f.local(), MaxCalls: 8, MaxCallsPerUser: 8, Version: "test", Log: quiet(), Traces: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)),
	})
	t.Cleanup(func() { must(t, server.Close()) })
	session := connected(t, server, nil)
	_, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Meta: mcp.Meta{"traceparent": clientParent, "tracestate": "a=b"}, Name: "run_command", Arguments: fields{"command": "secret"},
	})
	must(t, err)
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "secret"}); err == nil {
		t.Error("there is a tool of another name")
	}
	must(t, session.Ping(t.Context(), nil))
	spans := map[string]tracetest.SpanStub{}
	for _, span := range exporter.GetSpans() {
		spans[span.Name] = span
		if strings.Contains(fmt.Sprint(span), "secret") {
			t.Errorf("the span holds what a client wrote: %v", span)
		}
	}
	span := spans["tools/call run_command"]
	call := f.only("created", func(*v1alpha1.ToolCall) bool { return true })
	want := map[string]string{
		v1alpha1.AnnotationTraceParent: fmt.Sprintf("00-%s-%s-01", clientTrace, span.SpanContext.SpanID()), v1alpha1.AnnotationTraceState: "a=b",
	}
	if diff := cmp.Diff(want, call.Annotations); diff != "" || span.Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("the parent is %s, and of the call: %s", span.Parent.SpanID(), diff)
	}
	for name, want := range map[string]map[string]string{
		"tools/call run_command": {
			"mcp.method.name": "tools/call", "network.transport": "pipe", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "run_command",
			"error.type": "tool_error",
		},
		"tools/call": {
			"mcp.method.name": "tools/call", "network.transport": "pipe", "gen_ai.operation.name": "execute_tool", "rpc.response.status_code": "-32602",
		},
		"ping": {"mcp.method.name": "ping", "network.transport": "pipe"},
	} {
		got := map[string]string{}
		for _, one := range spans[name].Attributes {
			got[string(one.Key)] = one.Value.AsString()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if failed := spans[name].Status.Code == codes.Error; failed != (want["error.type"] != "") {
			t.Errorf("%s: failed %t", name, failed)
		}
	}
}
