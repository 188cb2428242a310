package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
)

// Counts are numbers by environment, as they are when metrics are read. A replica that doesn't lead has nil, and then no
// series: those of the leader are all there are.
type Counts = map[types.NamespacedName]int

// RegisterCallsInFlight exposes the number of calls that have not ended.
func RegisterCallsInFlight(count func() Counts) {
	registerCounts("toolcall_calls_in_flight", "Calls that have not ended, by environment.", count)
}

// RegisterCallsQueued exposes the number of calls that wait for a place in their environment or for their session.
func RegisterCallsQueued(count func() Counts) {
	registerCounts("toolcall_calls_queued", "Calls that wait for a place in their environment, or for their session, by environment.", count)
}

// RegisterCallsAwaitingApproval exposes the number of calls that wait for people to decide about them.
func RegisterCallsAwaitingApproval(count func() Counts) {
	registerCounts("toolcall_calls_awaiting_approval", "Calls that wait for people to decide about them, by environment.", count)
}

func registerCounts(name, help string, count func() Counts) {
	desc := prometheus.NewDesc(name, help, withEnvironment(), nil)
	crmetrics.Registry.MustRegister(&collector{desc, func(ch chan<- prometheus.Metric) {
		if counts := count(); counts != nil {
			emit(ch, desc, counts)
		}
	}})
}

// RegisterSessions exposes the number of sessions by environment and phase.
func RegisterSessions(count func() map[v1alpha1.SessionPhase]Counts) {
	desc := prometheus.NewDesc("toolcall_sessions", "Sessions, by environment and phase.", withEnvironment("phase"), nil)
	crmetrics.Registry.MustRegister(&collector{desc, func(ch chan<- prometheus.Metric) {
		counts := count()
		if counts == nil {
			return
		}
		for _, phase := range []v1alpha1.SessionPhase{v1alpha1.SessionPending, v1alpha1.SessionReady, v1alpha1.SessionSuspended, v1alpha1.SessionEnded} {
			emit(ch, desc, counts[phase], string(phase))
		}
	}})
}

func emit(ch chan<- prometheus.Metric, desc *prometheus.Desc, counts Counts, more ...string) {
	for labels, n := range known.fold(counts) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), append(labels[:], more...)...)
	}
}

// collector makes series when they are read.
type collector struct {
	desc    *prometheus.Desc
	collect func(chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

var (
	environmentReady = kept(gauges("toolcall_environment_ready", withEnvironment(),
		"Whether calls can run in an environment: 1 while its condition Ready is True, else 0."))
	poolReady = kept(gauges("toolcall_pool_pods_ready", withEnvironment(),
		"Pods of an environment's warm pool that wait for a call."))
	poolDesired = kept(gauges("toolcall_pool_pods_desired", withEnvironment(),
		"Pods that an environment's warm pool should have."))
)

// show shows the state of an environment that has series of its own.
func (s *State) show(name types.NamespacedName) {
	environmentReady.WithLabelValues(name.Namespace, name.Name).Set(number(s.Ready))
	if s.PoolDesired > 0 {
		poolReady.WithLabelValues(name.Namespace, name.Name).Set(float64(s.PoolReady))
		poolDesired.WithLabelValues(name.Namespace, name.Name).Set(float64(s.PoolDesired))
	} else {
		poolReady.DeleteLabelValues(name.Namespace, name.Name)
		poolDesired.DeleteLabelValues(name.Namespace, name.Name)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// RegisterRunnerConnections exposes the number of connected runners.
func RegisterRunnerConnections(count func() int) {
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcall_runner_connections", Help: "Runners that are connected to this replica.",
	}, func() float64 { return float64(count()) })
}

// RegisterRequestLimit exposes how many requests a second the operator makes to the API server at most.
func RegisterRequestLimit(perSecond float64) {
	factory.NewGauge(prometheus.GaugeOpts{
		Name: "toolcall_api_request_limit", Help: "Requests that this replica makes to the API server per second at most (--qps).",
	}).Set(perSecond)
}

// RegisterClusterFeatures exposes what the cluster has, of what the operator uses where it is there.
func RegisterClusterFeatures(features map[string]bool) {
	uses := gauges("toolcall_cluster_feature", []string{"feature"},
		"Whether the operator uses a feature of the cluster (1), or does without it (0): ImageVolume, which brings the runner into pods.")
	for feature, there := range features {
		uses.WithLabelValues(feature).Set(number(there))
	}
}

// SetClockSkew says how far the API server's clock is ahead of this machine's.
func SetClockSkew(ahead time.Duration) { clockSkew.Set(ahead.Seconds()) }
