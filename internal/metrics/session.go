package metrics

import (
	"toolcall.dev/operator/api/v1alpha1"
)

var (
	sessionsEnded = kept(counters("toolcall_sessions_ended_total", withEnvironment("reason"),
		"Ended sessions, by environment and reason."))
	sessionsReady = kept(histograms("toolcall_session_ready_seconds", withEnvironment("path"),
		"Time from the creation of a session until its first pod took calls, by environment and path (Cold, Warm)."))
)

// CountSessionEnded counts a session of a namespace that ended.
func CountSessionEnded(namespace string, status *v1alpha1.ToolSessionStatus) {
	known.count(environmentOf(namespace, status.Environment), func(namespace, environment string) {
		sessionsEnded.WithLabelValues(namespace, environment, status.Reason).Inc()
	})
}

// CountSessionReady counts a session of a namespace that has its first pod.
func CountSessionReady(namespace string, status *v1alpha1.ToolSessionStatus) {
	t := status.Timings
	if t == nil || t.ReadyMilliseconds == nil {
		return
	}
	known.count(environmentOf(namespace, status.Environment), func(namespace, environment string) {
		sessionsReady.WithLabelValues(namespace, environment, string(t.Path)).Observe(float64(*t.ReadyMilliseconds) / 1000)
	})
}
