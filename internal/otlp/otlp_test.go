package otlp_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"toolcall.dev/operator/internal/otlp"
	"toolcall.dev/operator/internal/testing/otlptest"
)

// environment is one with these variables.
func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

// lost counts what was not exported.
type lost struct{ traces, metrics, logs, errors atomic.Int64 }

func (l *lost) options() otlp.Options {
	return otlp.Options{
		Service: "s", Version: "v", Signals: []otlp.Signal{otlp.Traces, otlp.Metrics, otlp.Logs},
		Lost: func(signal otlp.Signal, n int) {
			map[otlp.Signal]*atomic.Int64{otlp.Traces: &l.traces, otlp.Metrics: &l.metrics, otlp.Logs: &l.logs}[signal].Add(int64(n))
		},
		Log: func(error) { l.errors.Add(1) },
	}
}

func newExport(t *testing.T, getenv func(string) string, l *lost) *otlp.Export {
	t.Helper()
	export, err := otlp.New(t.Context(), getenv, l.options())
	if err != nil {
		t.Fatal(err)
	}
	return export
}

func TestTheEnvironmentSaysWhatIsExported(t *testing.T) {
	for sentence, tc := range map[string]struct {
		variables       map[string]string
		traces, records bool
		err             string
	}{
		"nothing without an endpoint":         {nil, false, false, ""},
		"everything with one for all":         {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true, true, ""},
		"one signal with its own":             {map[string]string{"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "https://127.0.0.1:1/x"}, false, true, ""},
		"all but one that is turned off":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_LOGS_EXPORTER": "none"}, true, false, ""},
		"nothing when all is turned off":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "True"}, false, false, ""},
		"an endpoint without a scheme":        {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, false, false, "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL"},
		"an endpoint that isn't a URL at all": {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ":\x7f"}, false, false, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT must be a URL"},
		"a protocol that isn't supported": {
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, false,
			"OTEL_EXPORTER_OTLP_PROTOCOL is grpc: only http/protobuf is supported, and http/json for traces",
		},
		"a protocol of a signal before that of all": {
			map[string]string{
				"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
			}, false, true, "",
		},
		"a queue without a bound": {
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_MAX_QUEUE_SIZE": "1000000000000"}, false, false, "OTEL_BSP_MAX_QUEUE_SIZE must be a number",
		},
	} {
		export, err := otlp.New(t.Context(), environment(tc.variables), new(lost).options())
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v", sentence, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", sentence, err)
		}
		if _, off := export.Traces.(nooptrace.TracerProvider); off == tc.traces || (export.Records("x") != nil) != tc.records {
			t.Errorf("%s: no spans %t, records %v", sentence, off, export.Records("x"))
		}
		_ = export.Shutdown(t.Context())
	}
}

func TestRecordsAreExportedAsTheyAre(t *testing.T) {
	endpoint, l := otlptest.New(t), &lost{}
	export := newExport(t, endpoint.Getenv, l)
	at := time.Unix(100, 5)
	body := struct {
		Name   string           `json:"name"`
		Large  int64            `json:"large"`
		Share  float64          `json:"share"`
		Yes    bool             `json:"yes"`
		None   *string          `json:"none"`
		List   []any            `json:"list"`
		Object map[string][]int `json:"object"`
	}{"né", 1 << 60, 0.5, true, nil, []any{"a", 1}, map[string][]int{"x": {1, 2}}}
	if err := export.Records("toolcall.audit").Write(t.Context(), at, body, attribute.String("k", "v")); err != nil {
		t.Fatal(err)
	}
	if err := export.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	logs := endpoint.Logs()
	if len(logs) != 1 || logs[0].GetEventName() != "toolcall.audit" || logs[0].GetTimeUnixNano() != uint64(at.UnixNano()) {
		t.Fatalf("got %v", logs)
	}
	want := map[string]any{
		"name": "né", "large": int64(1 << 60), "share": 0.5, "yes": true, "none": nil, "list": []any{"a", int64(1)},
		"object": map[string]any{"x": []any{int64(1), int64(2)}},
	}
	if diff := cmp.Diff(want, otlptest.Value(logs[0].GetBody())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"k": "v"}, otlptest.Attributes(logs[0].GetAttributes())); diff != "" {
		t.Error(diff)
	}
	if l.logs.Load() != 0 {
		t.Errorf("%d records are lost", l.logs.Load())
	}
}

func TestARecordIsBounded(t *testing.T) {
	endpoint := otlptest.New(t)
	export := newExport(t, endpoint.Getenv, &lost{})
	for _, body := range []any{strings.Repeat("é", 1<<20), make([]int, 1<<20), map[string]any{strings.Repeat("k", 1<<20): 1}} {
		if err := export.Records("e").Write(t.Context(), time.Now(), body); err != nil {
			t.Error(err)
		}
	}
	if err := export.Records("e").Write(t.Context(), time.Now(), make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
	if err := export.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(endpoint.Logs()) != 3 {
		t.Fatalf("%d records", len(endpoint.Logs()))
	}
	for i, record := range endpoint.Logs() {
		if otlptest.Attributes(record.GetAttributes())["toolcall.truncated"] != true || len(record.GetBody().String()) > 1<<20 {
			t.Errorf("record %d has %d bytes and %v", i, len(record.GetBody().String()), record.GetAttributes())
		}
	}
}

// A collector that doesn't answer costs memory for as many items as may wait; the others are counted.
func TestACollectorThatHangsDelaysNothing(t *testing.T) {
	endpoint, release := otlptest.Stuck(t)
	l := &lost{}
	export := newExport(t, func(name string) string {
		if strings.HasSuffix(name, "_MAX_QUEUE_SIZE") {
			return "10"
		}
		return endpoint.Getenv(name)
	}, l)
	tracer, records := export.Traces.Tracer(""), export.Records("e")
	for range 100 {
		_, span := tracer.Start(t.Context(), "x")
		span.End()
		if err := records.Write(t.Context(), time.Now(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if traces, logs := l.traces.Load(), l.logs.Load(); traces != 90 || logs != 90 {
		t.Errorf("%d spans and %d records are lost", traces, logs)
	}
	release()
	if err := export.Shutdown(t.Context()); err != nil || l.traces.Load() != 90 || l.logs.Load() != 90 {
		t.Errorf("%d spans and %d records are lost: %v", l.traces.Load(), l.logs.Load(), err)
	}
}

func TestAFailedExportIsCounted(t *testing.T) {
	l := &lost{}
	export := newExport(t, environment(map[string]string{
		// An endpoint that knows no signal.
		"OTEL_EXPORTER_OTLP_ENDPOINT": otlptest.New(t).URL + "/elsewhere",
	}), l)
	_, span := export.Traces.Tracer("").Start(t.Context(), "x")
	span.End()
	counter, err := export.Metrics.Meter("").Int64Counter("x")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 1)
	if err := export.Records("e").Write(t.Context(), time.Now(), "x"); err != nil {
		t.Fatal(err)
	}
	_ = export.Shutdown(t.Context())
	if traces, metrics, logs := l.traces.Load(), l.metrics.Load(), l.logs.Load(); traces != 1 || metrics != 1 || logs != 1 {
		t.Errorf("%d spans, %d exports of metrics and %d records are lost", traces, metrics, logs)
	}
}

func TestNoExportExportsNothing(t *testing.T) {
	t.Parallel()
	var export *otlp.Export
	if err := export.Records("e").Write(t.Context(), time.Now(), make(chan int)); err != nil {
		t.Error(err)
	}
	if err := export.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
