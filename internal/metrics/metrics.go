// Package metrics holds the operator's own metrics, registered with controller-runtime's registry.
//
// Labels are phases, reasons and paths: constants of the API. No name, command or user text is in any.
// Functions are called after the write that made them true, once a transition.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
)

var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}

var (
	finished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_calls_finished_total",
		Help: "Calls that ended, by terminal phase and reason.",
	}, []string{"phase", "reason"})
	stages = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "toolcall_call_stage_seconds",
		Help:    "Time from a call's creation to a stage (accepted, started, finished), by path (Cold, Warm, or None when nothing was made).",
		Buckets: buckets,
	}, []string{"stage", "path"})
	resultBytes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_result_bytes_total",
		Help: "Bytes that finished processes wrote, by stream, kept or not.",
	}, []string{"stream"})
	reports = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_reports_total",
		Help: "Results that runners sent, by what became of them: recorded, repeated (it was recorded before) or refused (it can't be).",
	}, []string{"outcome"})
	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toolcall_events_dropped_total",
		Help: "Events about finished calls that were not sent, because their namespace had too many.",
	})
)

func init() {
	crmetrics.Registry.MustRegister(finished, stages, resultBytes, reports, eventsDropped)
}

// Fate is what became of a runner's report.
type Fate string

// Fates of a report.
const (
	Recorded Fate = "recorded"
	Repeated Fate = "repeated"
	Refused  Fate = "refused"
)

// Reported counts a result that a runner sent.
func Reported(fate Fate) { reports.WithLabelValues(string(fate)).Inc() }

// EventDropped counts an Event that a namespace's limit kept back.
func EventDropped() { eventsDropped.Inc() }

// InFlight exposes the number of calls that have not ended.
func InFlight(count func() int) {
	crmetrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcall_calls_in_flight",
		Help: "Calls that have not ended.",
	}, func() float64 { return float64(count()) }))
}

// Queued exposes the number of calls that wait for their turn.
func Queued(count func() int) {
	crmetrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcall_calls_queued",
		Help: "Calls that wait because their environment runs as many as it may.",
	}, func() float64 { return float64(count()) }))
}

// Finished counts a call that ended.
func Finished(status *v1alpha1.ToolCallStatus) {
	finished.WithLabelValues(string(status.Phase), status.Reason).Inc()
	if status.Streams != nil {
		resultBytes.WithLabelValues("stdout").Add(float64(status.Streams.Stdout.Bytes))
		resultBytes.WithLabelValues("stderr").Add(float64(status.Streams.Stderr.Bytes))
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

// Runners exposes the number of connected runners.
func Runners(count func() int) {
	crmetrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcall_runner_connections",
		Help: "Runners that are connected to this replica.",
	}, func() float64 { return float64(count()) }))
}
