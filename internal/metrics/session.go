package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"toolcall.dev/operator/api/v1alpha1"
)

var (
	sessionsEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_sessions_ended_total",
		Help: "Ended sessions, by reason.",
	}, []string{"reason"})
	sessionsReady = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "toolcall_session_ready_seconds",
		Help:    "Time from the creation of a session until its first pod took calls, by path (Cold, Warm).",
		Buckets: buckets,
	}, []string{"path"})
)

// CountSessionEnded counts a session that ended.
func CountSessionEnded(status *v1alpha1.ToolSessionStatus) {
	sessionsEnded.WithLabelValues(status.Reason).Inc()
}

// CountSessionReady counts a session that has its first pod.
func CountSessionReady(status *v1alpha1.ToolSessionStatus) {
	if t := status.Timings; t != nil && t.ReadyMilliseconds != nil {
		sessionsReady.WithLabelValues(string(t.Path)).Observe(float64(*t.ReadyMilliseconds) / 1000)
	}
}

// RegisterSessions exposes the number of sessions of each phase. count is asked once for each.
func RegisterSessions(count func(v1alpha1.SessionPhase) int) {
	for _, phase := range []v1alpha1.SessionPhase{v1alpha1.SessionPending, v1alpha1.SessionReady, v1alpha1.SessionSuspended, v1alpha1.SessionEnded} {
		register("toolcall_sessions", "Sessions, by phase.", prometheus.Labels{"phase": string(phase)}, func() float64 { return float64(count(phase)) })
	}
}
