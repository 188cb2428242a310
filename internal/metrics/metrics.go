// Package metrics holds the operator's own metrics, in controller-runtime's registry.
//
// The values of labels are constants, phases, reasons and paths of the API among them, and the names of environments that exist
// with those of their namespaces: of MaxEnvironments at most, until they are deleted. No label holds another name, a command
// or other text of a user. A count follows the write that made it true, once for each transition.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
)

// Warm calls start within some milliseconds, cold ones within seconds; start limits are minutes.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}

// factory makes metrics that are registered.
var factory = promauto.With(crmetrics.Registry)

func counter(name, help string) prometheus.Counter {
	return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name string, labels []string, help string) *prometheus.CounterVec {
	return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauges(name string, labels []string, help string) *prometheus.GaugeVec {
	return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histograms(name string, labels []string, help string) *prometheus.HistogramVec {
	return factory.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

type vector interface {
	DeletePartialMatch(prometheus.Labels) int
}

// byEnvironment are the metrics by environment that are kept until the environment is deleted.
var byEnvironment []vector

func kept[V vector](v V) V {
	byEnvironment = append(byEnvironment, v)
	return v
}

var (
	finished = kept(counters("toolcall_calls_finished_total", withEnvironment("phase", "reason"),
		"Finished calls, by environment, terminal phase and reason."))
	stages = kept(histograms("toolcall_call_stage_seconds", withEnvironment("stage", "path"),
		"Time from the creation of a call to a stage (accepted, started, finished), by environment and path (Cold, Warm, Session, or None for a call without a pod)."))
	refused = kept(counters("toolcall_programs_refused_total", withEnvironment("rule"),
		"Executions that the kernel's walls refused in finished calls, by environment and rule; rule Omitted has those of programs that the call's status doesn't list."))
	networkDenied = kept(counters("toolcall_network_denied_total", withEnvironment("type"),
		"Attempts to reach the network that were refused to finished calls, by environment and type: Connection, Lookup, or Omitted for those that the call's status doesn't list."))
	resultBytes = kept(counters("toolcall_result_bytes_total", withEnvironment("stream"),
		"Bytes that the processes of finished calls wrote, by environment and stream, including bytes that the result leaves out."))
	reports = counters("toolcall_reports_total", []string{"outcome"},
		"Results that runners sent, by outcome: recorded, repeated (recorded before) or refused (not a valid result of the call).")
	approvals = counters("toolcall_approvals_total", []string{"decision"},
		"Calls that people were asked about, by decision: approved, denied, or expired (nobody decided in time).")
	eventsDropped = counter("toolcall_events_dropped_total",
		"Events about finished calls that were not sent, because their namespace had too many.")
	recordsDropped = counter("toolcall_program_records_dropped_total",
		"Records of the programs of finished calls that were not written to the log, because their namespace had too many.")
	auditLost = counter("toolcall_audit_records_lost_total",
		"Records that are missing in the audit log, because it couldn't be written to for longer than records could wait.")
	telemetryLost = counters("toolcall_telemetry_lost_total", []string{"signal"},
		"What was not exported by OTLP, because the endpoint failed or too much waited for it, by signal: spans of traces, exports of metrics, records of logs.")
	clockSkew = factory.NewGauge(prometheus.GaugeOpts{
		Name: "toolcall_clock_skew_seconds",
		Help: "How far the API server's clock is ahead of this replica's, by the newest answer; 0 while they agree within a second.",
	})
)

// rare are the reasons and rules that alerts watch for. A series that begins at 1 doesn't rise for Prometheus, so these begin
// at 0, before the first of them happens.
var rare = struct{ failed, denied, rules, sessions []string }{
	failed: []string{
		v1alpha1.ReasonPodLost, v1alpha1.ReasonStartTimeout, v1alpha1.ReasonUnschedulable, v1alpha1.ReasonImagePullFailed, v1alpha1.ReasonPodRejected,
		v1alpha1.ReasonIsolationUnavailable,
	},
	denied:   []string{v1alpha1.ReasonGuardError, v1alpha1.ReasonBudgetExceeded},
	rules:    []string{"Loader", "Unnamed", "Changed"},
	sessions: []string{v1alpha1.ReasonStartFailed, v1alpha1.ReasonPodLost},
}

// beginSeries has the series of an environment that alerts watch, or compare with, begin at 0.
func beginSeries(namespace, environment string) {
	finished.WithLabelValues(namespace, environment, string(v1alpha1.PhaseSucceeded), v1alpha1.ReasonCompleted)
	finished.WithLabelValues(namespace, environment, string(v1alpha1.PhaseFailed), v1alpha1.ReasonNonZeroExit)
	for _, reason := range rare.failed {
		finished.WithLabelValues(namespace, environment, string(v1alpha1.PhaseFailed), reason)
	}
	for _, reason := range rare.denied {
		finished.WithLabelValues(namespace, environment, string(v1alpha1.PhaseDenied), reason)
	}
	for _, rule := range rare.rules {
		refused.WithLabelValues(namespace, environment, rule)
	}
	networkDenied.WithLabelValues(namespace, environment, deniedConnection)
	networkDenied.WithLabelValues(namespace, environment, deniedLookup)
	for _, reason := range rare.sessions {
		sessionsEnded.WithLabelValues(namespace, environment, reason)
	}
	poolFailed.WithLabelValues(namespace, environment)
}

func init() {
	beginSeries(Other, Other)
	for _, outcome := range []ReportOutcome{ReportRecorded, ReportRepeated, ReportRefused} {
		reports.WithLabelValues(string(outcome))
	}
	for _, decision := range []ApprovalDecision{Approved, ApprovalDenied, ApprovalExpired} {
		approvals.WithLabelValues(string(decision))
	}
	for _, signal := range []string{"traces", "metrics", "logs"} {
		telemetryLost.WithLabelValues(signal)
	}
	for _, operation := range []StoreOperation{StoreWrite, StoreRead, StoreDelete, StoreSweep} {
		storeErrors.WithLabelValues(string(operation))
	}
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

// ApprovalDecision is what came of asking people about a call.
type ApprovalDecision string

// Decisions about a call.
const (
	Approved        ApprovalDecision = "approved"
	ApprovalDenied  ApprovalDecision = "denied"
	ApprovalExpired ApprovalDecision = "expired"
)

// CountApproval counts a call that people were asked about.
func CountApproval(decision ApprovalDecision) { approvals.WithLabelValues(string(decision)).Inc() }

// CountDroppedEvent counts an Event that a namespace's limit kept back.
func CountDroppedEvent() { eventsDropped.Inc() }

// CountDroppedRecord counts a record for the log that a namespace's limit kept back.
func CountDroppedRecord() { recordsDropped.Inc() }

// CountAuditRecordLost counts a record that the audit log will not have.
func CountAuditRecordLost() { auditLost.Inc() }

// CountLostTelemetry counts what was not exported by OTLP of a signal.
func CountLostTelemetry(signal string, n int) { telemetryLost.WithLabelValues(signal).Add(float64(n)) }

// CountFinished counts a call of a namespace that ended.
func CountFinished(namespace string, status *v1alpha1.ToolCallStatus) {
	known.count(environmentOf(namespace, status.Environment), func(namespace, environment string) {
		finished.WithLabelValues(namespace, environment, string(status.Phase), status.Reason).Inc()
		if status.Streams != nil {
			resultBytes.WithLabelValues(namespace, environment, "stdout").Add(float64(status.Streams.Stdout.Bytes))
			resultBytes.WithLabelValues(namespace, environment, "stderr").Add(float64(status.Streams.Stderr.Bytes))
		}
		for _, p := range status.Refused {
			refused.WithLabelValues(namespace, environment, p.Rule).Add(float64(p.Count))
		}
		if status.OmittedRefused > 0 {
			refused.WithLabelValues(namespace, environment, "Omitted").Add(float64(status.OmittedRefused))
		}
		countNetwork(networkDenied.MustCurryWith(prometheus.Labels{"namespace": namespace, "environment": environment}), status.Network)
		observeStages(stages.MustCurryWith(prometheus.Labels{"namespace": namespace, "environment": environment}), status.Timings)
	})
}

// The types of refused attempts.
const (
	deniedConnection = "Connection"
	deniedLookup     = "Lookup"
	deniedOmitted    = "Omitted"
)

func countNetwork(denied *prometheus.CounterVec, network *v1alpha1.NetworkStatus) {
	if network == nil {
		return
	}
	for _, d := range network.Denied {
		kind := deniedConnection
		if d.Port == 0 {
			kind = deniedLookup
		}
		denied.WithLabelValues(kind).Add(float64(d.Count))
	}
	if network.OmittedDenied > 0 {
		denied.WithLabelValues(deniedOmitted).Add(float64(network.OmittedDenied))
	}
}

func observeStages(stages prometheus.ObserverVec, timings *v1alpha1.CallTimings) {
	if timings == nil {
		return
	}
	path := string(timings.Path)
	if path == "" {
		path = "None"
	}
	for stage, ms := range map[string]*int64{
		"accepted": timings.AcceptedMilliseconds,
		"started":  timings.StartedMilliseconds,
		"finished": timings.FinishedMilliseconds,
	} {
		if ms != nil {
			stages.WithLabelValues(stage, path).Observe(float64(*ms) / 1000)
		}
	}
}
