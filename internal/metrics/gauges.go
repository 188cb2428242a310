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
	crmetrics.Registry.MustRegister(&collector{descs: []*prometheus.Desc{desc}, collect: func(ch chan<- prometheus.Metric) {
		if counts := count(); counts != nil {
			emit(ch, desc, counts)
		}
	}})
}

// RegisterSessions exposes the number of sessions by environment and phase.
func RegisterSessions(count func() map[v1alpha1.SessionPhase]Counts) {
	desc := prometheus.NewDesc("toolcall_sessions", "Sessions, by environment and phase.", withEnvironment("phase"), nil)
	crmetrics.Registry.MustRegister(&collector{descs: []*prometheus.Desc{desc}, collect: func(ch chan<- prometheus.Metric) {
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
	descs   []*prometheus.Desc
	collect func(chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

var (
	environmentReady = prometheus.NewDesc("toolcall_environment_ready",
		"Whether calls can run in an environment: 1 while its condition Ready is True, else 0.", withEnvironment(), nil)
	poolReady = prometheus.NewDesc("toolcall_pool_pods_ready",
		"Pods of an environment's warm pool that wait for a call.", withEnvironment(), nil)
	poolDesired = prometheus.NewDesc("toolcall_pool_pods_desired",
		"Pods that an environment's warm pool should have.", withEnvironment(), nil)
)

// states shows the state of each environment that has series of its own.
func states(e *environments) *collector {
	return &collector{descs: []*prometheus.Desc{environmentReady, poolReady, poolDesired}, collect: func(ch chan<- prometheus.Metric) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for name, state := range e.states {
			if state == nil {
				continue
			}
			show := func(desc *prometheus.Desc, value float64) {
				ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, name.Namespace, name.Name)
			}
			ready := 0.0
			if state.Ready {
				ready = 1
			}
			show(environmentReady, ready)
			if state.PoolDesired > 0 {
				show(poolReady, float64(state.PoolReady))
				show(poolDesired, float64(state.PoolDesired))
			}
		}
	}}
}

// RegisterRunnerConnections exposes the number of connected runners.
func RegisterRunnerConnections(count func() int) {
	register("toolcall_runner_connections", "Runners that are connected to this replica.", nil, func() float64 { return float64(count()) })
}

// RegisterRequestLimit exposes how many requests a second the operator makes to the API server at most.
func RegisterRequestLimit(perSecond float64) {
	register("toolcall_api_request_limit", "Requests that this replica makes to the API server per second at most (--qps).", nil,
		func() float64 { return perSecond })
}

// RegisterClusterFeatures exposes what the cluster has, of what the operator uses where it is there.
func RegisterClusterFeatures(features map[string]bool) {
	for feature, there := range features {
		register("toolcall_cluster_feature",
			"Whether the operator uses a feature of the cluster (1), or does without it (0): MutatingAdmissionPolicy, which fills in who created a call, and ImageVolume, which brings the runner into pods.",
			prometheus.Labels{"feature": feature}, func() float64 {
				if there {
					return 1
				}
				return 0
			})
	}
}

// SetClockSkew says how far the API server's clock is ahead of this machine's.
func SetClockSkew(ahead time.Duration) { clockSkew.Set(ahead.Seconds()) }

func register(name, help string, labels prometheus.Labels, value func() float64) {
	crmetrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}
