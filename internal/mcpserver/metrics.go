package mcpserver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// Metrics are the server's metrics, in their own registry. No label has a value that a client chooses.
type Metrics struct {
	Registry *prometheus.Registry

	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	rejected *prometheus.CounterVec
	lost     *prometheus.CounterVec
}

// NewMetrics returns registered metrics.
func NewMetrics() *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	factory := promauto.With(registry)
	return &Metrics{
		Registry: registry,
		calls: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "toolcall_mcp_calls_total", Help: "Uses of tools by tool and outcome: the phase of the call, NotCreated if there was none, Unknown if its outcome is unknown; Succeeded or Failed for tools that create no call.",
		}, []string{"tool", "outcome"}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "toolcall_mcp_call_duration_seconds", Help: "Time from the request of a tool call to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 13),
		}, []string{"tool"}),
		rejected: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "toolcall_mcp_http_rejected_total", Help: "HTTP requests that were rejected before they reached a tool, by reason.",
		}, []string{"reason"}),
		lost: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "toolcall_mcp_telemetry_lost_total", Help: "Spans that were not exported by OTLP, because the endpoint failed or too many waited for it, by signal.",
		}, []string{"signal"}),
	}
}

// outcomeOf returns the value of the label outcome: for a tool that creates no call, whether it Succeeded.
func outcomeOf(r *reply.Result, creates bool) string {
	switch {
	case !creates && r.Succeeded:
		return string(v1alpha1.PhaseSucceeded)
	case !creates:
		return string(v1alpha1.PhaseFailed)
	case r.Phase != "":
		return r.Phase
	case r.Call == "" || ptr.Deref(r.RetrySafe, false) && r.Reason != reply.ReasonUnknown && r.Reason != reply.ReasonDeleted && r.Reason != reply.ReasonNotFinished:
		return "NotCreated"
	default:
		return "Unknown"
	}
}

func (m *Metrics) observe(tool, outcome string, took time.Duration) {
	m.calls.WithLabelValues(tool, outcome).Inc()
	m.duration.WithLabelValues(tool).Observe(took.Seconds())
}

// CountLostTelemetry counts what was not exported by OTLP of a signal.
func (m *Metrics) CountLostTelemetry(signal string, n int) {
	m.lost.WithLabelValues(signal).Add(float64(n))
}

// exportSessions exports the number of open sessions.
func (m *Metrics) exportSessions(count func() int64) {
	promauto.With(m.Registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcall_mcp_sessions", Help: "Open sessions.",
	}, func() float64 { return float64(count()) })
}
