// Package otlptest is an OTLP endpoint for tests: it decodes the requests of exporters and records what they send. Only tests import it.
package otlptest

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracesv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Endpoint records what is exported to it.
type Endpoint struct {
	URL string

	mu        sync.Mutex
	spans     []*tracepb.Span
	metrics   []*metricspb.Metric
	logs      []*logspb.LogRecord
	resources []*resourcepb.Resource
}

// New starts an endpoint, which ends with the test.
func New(t testing.TB) *Endpoint {
	t.Helper()
	e := &Endpoint{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", decoded(t, e.addSpans))
	mux.HandleFunc("POST /v1/metrics", decoded(t, e.addMetrics))
	mux.HandleFunc("POST /v1/logs", decoded(t, e.addLogs))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	e.URL = server.URL
	return e
}

// Stuck starts an endpoint that answers no request until it is released, and then all. It records nothing.
func Stuck(t testing.TB) (e *Endpoint, release func()) {
	t.Helper()
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released }))
	t.Cleanup(func() {
		release()
		server.Close()
	})
	return &Endpoint{URL: server.URL}, release
}

// Getenv is an environment that exports every signal here.
func (e *Endpoint) Getenv(name string) string {
	if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		return e.URL
	}
	return ""
}

// decoded passes the message of each request on.
func decoded[T any, M interface {
	*T
	proto.Message
}](t testing.TB, add func(M)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, message := io.Reader(r.Body), M(new(T))
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Errorf("%s: %v", r.URL, err)
				return
			}
			body = unzipped
		}
		raw, err := io.ReadAll(body)
		if err == nil {
			err = proto.Unmarshal(raw, message)
		}
		if err != nil {
			t.Errorf("%s: %v", r.URL, err)
			return
		}
		add(message)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}
}

func (e *Endpoint) addSpans(request *tracesv1.ExportTraceServiceRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		e.resources = append(e.resources, of.GetResource())
		for _, scope := range of.GetScopeSpans() {
			e.spans = append(e.spans, scope.GetSpans()...)
		}
	}
}

func (e *Endpoint) addMetrics(request *metricsv1.ExportMetricsServiceRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, of := range request.GetResourceMetrics() {
		e.resources = append(e.resources, of.GetResource())
		for _, scope := range of.GetScopeMetrics() {
			e.metrics = append(e.metrics, scope.GetMetrics()...)
		}
	}
}

func (e *Endpoint) addLogs(request *logsv1.ExportLogsServiceRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, of := range request.GetResourceLogs() {
		e.resources = append(e.resources, of.GetResource())
		for _, scope := range of.GetScopeLogs() {
			e.logs = append(e.logs, scope.GetLogRecords()...)
		}
	}
}

// Span returns the span of a name, and fails the test unless there is exactly one.
func (e *Endpoint) Span(t testing.TB, name string) *tracepb.Span {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	var found *tracepb.Span
	for _, span := range e.spans {
		if span.GetName() == name && found != nil {
			t.Fatalf("there are two spans %q", name)
		}
		if span.GetName() == name {
			found = span
		}
	}
	if found == nil {
		t.Fatalf("there is no span %q in %v", name, e.spans)
	}
	return found
}

// Histogram returns the points of the histogram of a name, in the newest export.
func (e *Endpoint) Histogram(t testing.TB, name string) []*metricspb.HistogramDataPoint {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(e.metrics) - 1; i >= 0; i-- {
		if e.metrics[i].GetName() == name {
			return e.metrics[i].GetHistogram().GetDataPoints()
		}
	}
	t.Fatalf("there is no metric %q in %v", name, e.metrics)
	return nil
}

// Logs returns the records so far.
func (e *Endpoint) Logs() []*logspb.LogRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.logs
}

// Resources returns the attributes of the resource of each export.
func (e *Endpoint) Resources() (all []map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.resources {
		all = append(all, Attributes(one.GetAttributes()))
	}
	return all
}

// Attributes returns attributes as a map of plain values.
func Attributes(list []*commonpb.KeyValue) map[string]any {
	all := map[string]any{}
	for _, one := range list {
		all[one.GetKey()] = Value(one.GetValue())
	}
	return all
}

// Value returns a value as JSON would decode it, with int64 for whole numbers.
func Value(value *commonpb.AnyValue) any {
	switch v := value.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_ArrayValue:
		all := []any{}
		for _, one := range v.ArrayValue.GetValues() {
			all = append(all, Value(one))
		}
		return all
	case *commonpb.AnyValue_KvlistValue:
		return Attributes(v.KvlistValue.GetValues())
	default:
		return nil
	}
}
