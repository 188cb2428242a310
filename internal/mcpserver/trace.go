package mcpserver

import (
	"context"
	"errors"
	"reflect"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/otlp"
)

// maxTrace bounds each part of a client's trace context in bytes. The specification requires as much.
const maxTrace = 512

// maxTraceVersion bounds a client's version of the protocol in spans, in bytes: a date.
const maxTraceVersion = 16

// newTracer returns what makes spans of requests: nothing, without a provider.
func newTracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		provider = nooptrace.NewTracerProvider()
	}
	return provider.Tracer(otlp.Scope, trace.WithSchemaURL(semconv.SchemaURL))
}

// trace makes a span of each request, as a child of the client's. Without a tracer the client's span is the context's.
func (s *Server) trace(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		name, attributes := s.describeRequest(method, req)
		ctx, span := s.tracer.Start(clientSpan(ctx, req), name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
		defer span.End()
		result, err := next(ctx, method, req)
		recordOutcome(span, result, err)
		return result, err
	}
}

// describeRequest returns the name and the attributes of a request's span. Only names of tools that exist are in the name. Arguments and
// the resource are left out, and so is the request's id, which the SDK keeps to itself.
func (s *Server) describeRequest(method string, req mcp.Request) (string, []attribute.KeyValue) {
	name, list := method, []attribute.KeyValue{semconv.McpMethodNameKey.String(method)}
	transport := semconv.NetworkTransportPipe
	if extra := req.GetExtra(); senderOf(extra) != nil {
		transport = semconv.NetworkTransportTCP
		if version := extra.Header.Get(protocolHeader); version != "" && len(version) <= maxTraceVersion {
			list = append(list, semconv.McpProtocolVersion(version))
		}
	}
	list = append(list, transport)
	if session := req.GetSession(); session != nil && session.ID() != "" {
		list = append(list, semconv.McpSessionID(session.ID()))
	}
	if call, ok := req.(*mcp.CallToolRequest); ok {
		list = append(list, semconv.GenAIOperationNameExecuteTool)
		if _, known := s.tools[call.Params.Name]; known {
			name += " " + call.Params.Name
			list = append(list, semconv.GenAIToolName(call.Params.Name))
		}
	}
	return name, list
}

// recordOutcome has a span say what went wrong. A result with isError is a tool's failure, an error one of the protocol.
func recordOutcome(span trace.Span, result mcp.Result, err error) {
	var wire *jsonrpc.Error
	switch answer, _ := result.(*mcp.CallToolResult); {
	case errors.As(err, &wire):
		code := strconv.FormatInt(wire.Code, 10)
		span.SetAttributes(semconv.RPCResponseStatusCode(code))
		if isServerError(wire.Code) {
			span.SetAttributes(semconv.ErrorTypeKey.String(code))
			span.SetStatus(codes.Error, "")
		}
	case err != nil:
		span.SetAttributes(semconv.ErrorTypeOther)
		span.SetStatus(codes.Error, "")
	case answer != nil && answer.IsError:
		span.SetAttributes(semconv.ErrorTypeKey.String("tool_error"))
		span.SetStatus(codes.Error, "")
	}
}

// isServerError reports whether the server failed: other codes say that the request was wrong.
func isServerError(code int64) bool {
	return code == jsonrpc.CodeInternalError || code >= -32099 && code <= -32000
}

// clientSpan adds the client's span to the context of a request, if its _meta names a valid one.
func clientSpan(ctx context.Context, req mcp.Request) context.Context {
	carrier := propagation.MapCarrier{}
	// A request may have no parameters, which is a nil pointer here.
	if params := req.GetParams(); params != nil && !reflect.ValueOf(params).IsNil() {
		meta := params.GetMeta()
		for _, key := range (propagation.TraceContext{}).Fields() {
			if value, ok := meta[key].(string); ok && len(value) <= maxTrace {
				carrier[key] = value
			}
		}
	}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}

// traceOf returns the trace context of the request as annotations: the call becomes part of the client's trace.
func traceOf(ctx context.Context) map[string]string {
	carrier, annotations := propagation.MapCarrier{}, map[string]string{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for key, annotation := range map[string]string{
		"traceparent": v1alpha1.AnnotationTraceParent, "tracestate": v1alpha1.AnnotationTraceState,
	} {
		if carrier[key] != "" {
			annotations[annotation] = carrier[key]
		}
	}
	return annotations
}
