// Package metrics holds the operator's own metrics, in controller-runtime's registry.
//
// The values of labels are constants: phases, reasons and paths of the API, and the ones below. No label holds a name,
// a command or other text of a user. A count follows the write that made it true, once for each transition.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
)

// Warm calls start within some milliseconds, cold ones within seconds; start limits are minutes.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}

var (
	finished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_calls_finished_total",
		Help: "Finished calls, by terminal phase and reason.",
	}, []string{"phase", "reason"})
	stages = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "toolcall_call_stage_seconds",
		Help:    "Time from the creation of a call to a stage (accepted, started, finished), by path (Cold, Warm, Session, or None for a call without a pod).",
		Buckets: buckets,
	}, []string{"stage", "path"})
	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_programs_refused_total",
		Help: "Executions that the kernel's walls refused in finished calls, by rule; rule Omitted has those of programs that the call's status doesn't list.",
	}, []string{"rule"})
	resultBytes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_result_bytes_total",
		Help: "Bytes that the processes of finished calls wrote, by stream, including bytes that the result leaves out.",
	}, []string{"stream"})
	reports = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_reports_total",
		Help: "Results that runners sent, by outcome: recorded, repeated (recorded before) or refused (not a valid result of the call).",
	}, []string{"outcome"})
	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toolcall_events_dropped_total",
		Help: "Events about finished calls that were not sent, because their namespace had too many.",
	})
	recordsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toolcall_program_records_dropped_total",
		Help: "Records of the programs of finished calls that were not written to the log, because their namespace had too many.",
	})
)

func init() {
	crmetrics.Registry.MustRegister(finished, stages, refused, resultBytes, reports, eventsDropped, recordsDropped, sessionsEnded, sessionsReady,
		storeErrors, storedStreams)
}

// ReportOutcome is what the operator did with a result that a runner sent.
type ReportOutcome string

// Outcomes of a report.
const (
	ReportRecorded ReportOutcome = "recorded"
	ReportRepeated ReportOutcome = "repeated"
	ReportRefused  ReportOutcome = "refused"
)

// CountReport counts a result that a runner sent.
func CountReport(outcome ReportOutcome) { reports.WithLabelValues(string(outcome)).Inc() }

// CountDroppedEvent counts an Event that a namespace's limit kept back.
func CountDroppedEvent() { eventsDropped.Inc() }

// CountDroppedRecord counts a record for the log that a namespace's limit kept back.
func CountDroppedRecord() { recordsDropped.Inc() }

// CountFinished counts a call that ended.
func CountFinished(status *v1alpha1.ToolCallStatus) {
	finished.WithLabelValues(string(status.Phase), status.Reason).Inc()
	if status.Streams != nil {
		resultBytes.WithLabelValues("stdout").Add(float64(status.Streams.Stdout.Bytes))
		resultBytes.WithLabelValues("stderr").Add(float64(status.Streams.Stderr.Bytes))
	}
	for _, p := range status.Refused {
		refused.WithLabelValues(p.Rule).Add(float64(p.Count))
	}
	if status.OmittedRefused > 0 {
		refused.WithLabelValues("Omitted").Add(float64(status.OmittedRefused))
	}
	if status.Timings == nil {
		return
	}
	path := string(status.Timings.Path)
	if path == "" {
		path = "None"
	}
	for stage, ms := range map[string]*int64{
		"accepted": status.Timings.AcceptedMilliseconds,
		"started":  status.Timings.StartedMilliseconds,
		"finished": status.Timings.FinishedMilliseconds,
	} {
		if ms != nil {
			stages.WithLabelValues(stage, path).Observe(float64(*ms) / 1000)
		}
	}
}

// RegisterCallsInFlight exposes the number of calls that have not ended.
func RegisterCallsInFlight(count func() int) {
	register("toolcall_calls_in_flight", "Calls that have not ended.", nil, func() float64 { return float64(count()) })
}

// RegisterCallsQueued exposes the number of calls that wait for a place in their environment or for their session.
func RegisterCallsQueued(count func() int) {
	register("toolcall_calls_queued", "Calls that wait for a place in their environment, or for their session.", nil,
		func() float64 { return float64(count()) })
}

// RegisterRunnerConnections exposes the number of connected runners.
func RegisterRunnerConnections(count func() int) {
	register("toolcall_runner_connections", "Runners that are connected to this replica.", nil, func() float64 { return float64(count()) })
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

// RegisterClockSkew exposes how far the API servers' clocks are ahead of the operator's, and how far the API servers'
// answers contradict each other.
func RegisterClockSkew(operator, apiServers func() time.Duration) {
	for clock, skew := range map[string]func() time.Duration{"operator": operator, "apiservers": apiServers} {
		register("toolcall_clock_skew_seconds",
			"Differences between clocks: how far the API servers are ahead of this replica (clock=operator), and how far their answers contradict each other (clock=apiservers).",
			prometheus.Labels{"clock": clock}, func() float64 { return skew().Seconds() })
	}
}

func register(name, help string, labels prometheus.Labels, value func() float64) {
	crmetrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}
