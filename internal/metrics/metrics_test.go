package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// values returns the values of a metric by their labels, of a histogram the counts.
func values(t *testing.T, name string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, metric := range gather(t)[name].GetMetric() {
		var labels []string
		for _, pair := range metric.GetLabel() {
			labels = append(labels, fmt.Sprintf("%s=%s", pair.GetName(), pair.GetValue()))
		}
		all[strings.Join(labels, ",")] = valueOf(metric)
	}
	return all
}

func valueOf(metric *dto.Metric) float64 {
	if histogram := metric.GetHistogram(); histogram != nil {
		return float64(histogram.GetSampleCount())
	}
	return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
}

// other are the labels of what no environment with series of its own has; they are sorted by their names.
const other = "environment=Other,namespace=Other"

func stage(path, stage string) string { return other + ",path=" + path + ",stage=" + stage }

func TestAFinishedCallIsCountedWithItsStagesAndBytes(t *testing.T) {
	status := &v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit,
		Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 5}, Stderr: v1alpha1.StreamStatus{Bytes: 7}},
		Timings: &v1alpha1.CallTimings{
			AcceptedMilliseconds: ptr.To[int64](2), StartedMilliseconds: ptr.To[int64](20), FinishedMilliseconds: ptr.To[int64](200),
			Path: v1alpha1.PathWarm,
		},
	}
	names := []string{"toolcall_calls_finished_total", "toolcall_call_stage_seconds", "toolcall_result_bytes_total"}
	before := map[string]map[string]float64{}
	for _, name := range names {
		before[name] = values(t, name)
	}
	CountFinished("n", status)
	CountFinished("n", &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonShellDisabled})
	for name, want := range map[string]map[string]float64{
		names[0]: {other + ",phase=Failed,reason=NonZeroExit": 1, other + ",phase=Denied,reason=ShellDisabled": 1},
		names[1]: {stage("Warm", "accepted"): 1, stage("Warm", "started"): 1, stage("Warm", "finished"): 1},
		names[2]: {other + ",stream=stdout": 5, other + ",stream=stderr": 7},
	} {
		after := values(t, name)
		for labels, by := range want {
			if got := after[labels] - before[name][labels]; got != by {
				t.Errorf("%s{%s} went up by %g, want %g", name, labels, got, by)
			}
		}
	}
	if values(t, names[1])[stage("None", "finished")] == 0 {
		t.Error("a call without a pod has no stages")
	}
}

func TestRefusalsOfTheNetworkAreCountedByTypeAndWithoutTheHost(t *testing.T) {
	for sentence, tc := range map[string]struct {
		network *v1alpha1.NetworkStatus
		want    map[string]float64
	}{
		"a policy without network rules":  {nil, map[string]float64{}},
		"a call to which all was allowed": {&v1alpha1.NetworkStatus{Mode: v1alpha1.NetworkListed}, map[string]float64{}},
		"names, addresses and what the status leaves out": {&v1alpha1.NetworkStatus{
			Denied: []v1alpha1.DeniedHost{
				{Host: "a.test", Count: 2}, {Host: "a.test", Port: 443, Count: 5}, {Host: "b.test", Count: 1}, {Host: "192.0.2.7", Port: 22, Count: 1},
			},
			OmittedDenied: 9,
		}, map[string]float64{"Lookup": 3, "Connection": 6, "Omitted": 9}},
	} {
		const name = "toolcall_network_denied_total"
		before := values(t, name)
		CountFinished("n", &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, Network: tc.network})
		got := map[string]float64{}
		for labels, value := range seriesOf(t, "") {
			if kind, ok := strings.CutPrefix(labels, name+"{"+other+",type="); ok {
				kind = strings.TrimSuffix(kind, "}")
				if by := value - before[other+",type="+kind]; by != 0 {
					got[kind] = by
				}
			}
			if strings.Contains(labels, "a.test") || strings.Contains(labels, "192.0.2.7") {
				t.Errorf("%s: the host is a label: %s", sentence, labels)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s, want (-) and got (+):\n%s", sentence, diff)
		}
	}
}

func TestGaugesShowWhatIsCountedNow(t *testing.T) {
	for name, want := range map[string]map[string]float64{
		"toolcall_calls_in_flight":    {other: 3},
		"toolcall_calls_queued":       {other: 2},
		"toolcall_runner_connections": {"": 1},
		"toolcall_api_request_limit":  {"": 1000},
		"toolcall_sessions":           {other + ",phase=Pending": 7, other + ",phase=Ready": 0, other + ",phase=Suspended": 9, other + ",phase=Ended": 0},
		"toolcall_clock_skew_seconds": {"": -1.5},
	} {
		got := values(t, name)
		maps.DeleteFunc(got, func(labels string, _ float64) bool { return strings.Contains(labels, "namespace=gathered") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, want (-) and got (+):\n%s", name, diff)
		}
	}
}

func TestReportsAreCountedByOutcome(t *testing.T) {
	before := values(t, "toolcall_reports_total")
	CountReport(ReportRefused)
	CountReport(ReportRepeated)
	after := values(t, "toolcall_reports_total")
	for _, outcome := range []ReportOutcome{ReportRefused, ReportRepeated} {
		if labels := "outcome=" + string(outcome); after[labels] != before[labels]+1 {
			t.Errorf("%s: %g after %g", labels, after[labels], before[labels])
		}
	}
}

// Names follow Prometheus's conventions: base units, counters end in _total.
func TestNamesHaveBaseUnits(t *testing.T) {
	for name, family := range gather(t) {
		counter := family.GetType() == dto.MetricType_COUNTER
		if counter != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, family.GetType())
		}
		words := strings.Split(name, "_")
		if family.GetType() == dto.MetricType_HISTOGRAM && !slices.Contains([]string{"seconds", "bytes"}, words[len(words)-1]) {
			t.Errorf("the unit of %s isn't a base unit", name)
		}
		if help := family.GetHelp(); !strings.HasSuffix(help, ".") {
			t.Errorf("the help of %s isn't a sentence: %s", name, help)
		}
	}
}
