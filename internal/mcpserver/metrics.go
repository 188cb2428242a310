package mcpserver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics of the server, in a registry of their own. No label holds a name that a client chose.
type Metrics struct {
	Registry *prometheus.Registry

	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  *prometheus.CounterVec
}

// NewMetrics makes and registers them.
func NewMetrics() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "toolcall_mcp_calls_total", Help: "Tool calls answered, by tool and outcome: the call's phase, Refused when none was created, Unknown when its end isn't known.",
		}, []string{"tool", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "toolcall_mcp_call_duration_seconds", Help: "Time from a tool call's request to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 13),
		}, []string{"tool"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "toolcall_mcp_http_refused_total", Help: "HTTP requests that were refused before they reached a tool, by reason.",
		}, []string{"reason"}),
	}
	m.Registry.MustRegister(m.calls, m.duration, m.refused, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) observe(tool string, r *Result, took time.Duration) {
	outcome := r.Phase
	switch {
	case r.Phase == "" && r.Name == "":
		outcome = "Refused"
	case r.Phase == "":
		outcome = "Unknown"
	}
	m.calls.WithLabelValues(tool, outcome).Inc()
	m.duration.WithLabelValues(tool).Observe(took.Seconds())
}

// watchSessions exports a number that is read when it is asked for.
func (m *Metrics) watchSessions(count func() int) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcall_mcp_sessions", Help: "Sessions that are open.",
	}, func() float64 { return float64(count()) }))
}
