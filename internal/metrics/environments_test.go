package metrics

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
)

// seriesOf lists the series of a namespace, or of all, as METRIC{labels}. It registers nothing and counts nothing.
func seriesOf(t *testing.T, namespace string) map[string]float64 {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			series := family.GetName() + "{" + strings.Join(labels, ",") + "}"
			if strings.HasPrefix(series, "toolcall_") && (namespace == "" || strings.Contains(series, "namespace="+namespace)) {
				all[series] = valueOf(metric)
			}
		}
	}
	return all
}

func ranIn(environment string) *v1alpha1.ToolCallStatus {
	return &v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonEnvironmentNotFound, Environment: &v1alpha1.ResolvedEnvironment{Name: environment},
		Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 1}}, Refused: []v1alpha1.RefusedProgram{{Rule: "NotListed", Count: 1}},
		Network: &v1alpha1.NetworkStatus{Denied: []v1alpha1.DeniedHost{{Host: "packages.example.com", Count: 2}, {Host: "192.0.2.7", Port: 22, Count: 3}}},
		Timings: &v1alpha1.CallTimings{StartedMilliseconds: ptr.To[int64](1), Path: v1alpha1.PathCold},
	}
}

func TestWhatRunsInAnEnvironmentCountsForIt(t *testing.T) {
	env := types.NamespacedName{Namespace: "counted", Name: "tools"}
	AddEnvironment(env)
	defer ForgetEnvironment(env)
	if _, found := seriesOf(t, "counted")["toolcall_environment_ready{environment=tools,namespace=counted}"]; found {
		t.Error("a state is shown that isn't known")
	}
	SetEnvironment(env, State{PoolReady: 1, PoolDesired: 3})
	CountFinished("counted", ranIn("tools"))
	CountFinished("counted", ranIn(""))
	CountFinished("elsewhere", ranIn("tools"))
	CountPoolCreated(env)
	CountPoolFailed(env)
	CountStored("counted", ranIn("tools"), "Complete", 12)
	CountSessionEnded("counted", &v1alpha1.ToolSessionStatus{Reason: v1alpha1.ReasonPodLost, Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}})
	CountSessionReady("counted", &v1alpha1.ToolSessionStatus{
		Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}, Timings: &v1alpha1.SessionTimingsStatus{ReadyMilliseconds: ptr.To[int64](1), Path: v1alpha1.PathCold},
	})
	got := seriesOf(t, "counted")
	const own = "{environment=tools,namespace=counted"
	for series, want := range map[string]float64{
		"toolcall_calls_finished_total" + own + ",phase=Failed,reason=EnvironmentNotFound}":                          1,
		"toolcall_calls_finished_total{environment=Other,namespace=counted,phase=Failed,reason=EnvironmentNotFound}": 1,
		"toolcall_calls_finished_total" + own + ",phase=Failed,reason=PodLost}":                                      0,
		"toolcall_call_stage_seconds" + own + ",path=Cold,stage=started}":                                            1,
		"toolcall_programs_refused_total" + own + ",rule=NotListed}":                                                 1,
		"toolcall_network_denied_total" + own + ",type=Lookup}":                                                      2,
		"toolcall_network_denied_total" + own + ",type=Connection}":                                                  3,
		"toolcall_network_denied_total{environment=Other,namespace=counted,type=Lookup}":                             2,
		"toolcall_result_bytes_total" + own + ",stream=stdout}":                                                      1,
		"toolcall_output_streams_total" + own + ",state=Complete}":                                                   1,
		"toolcall_output_stored_bytes_total" + own + "}":                                                             12,
		"toolcall_sessions_ended_total" + own + ",reason=PodLost}":                                                   1,
		"toolcall_sessions_ended_total" + own + ",reason=StartFailed}":                                               0,
		"toolcall_session_ready_seconds" + own + ",path=Cold}":                                                       1,
		"toolcall_pool_pods_created_total" + own + "}":                                                               1,
		"toolcall_pool_pods_failed_total" + own + "}":                                                                1,
		"toolcall_pool_pods_ready" + own + "}":                                                                       1,
		"toolcall_pool_pods_desired" + own + "}":                                                                     3,
		"toolcall_environment_ready" + own + "}":                                                                     0,
	} {
		if value, found := got[series]; !found || value != want {
			t.Errorf("%s is %g (there: %t), want %g", series, value, found, want)
		}
	}
	if strangers := seriesOf(t, "elsewhere"); len(strangers) != 0 {
		t.Errorf("a namespace without an environment has series: %v", strangers)
	}
	SetEnvironment(env, State{Ready: true})
	got = seriesOf(t, "counted")
	if _, found := got["toolcall_pool_pods_ready"+own+"}"]; found || got["toolcall_environment_ready"+own+"}"] != 1 {
		t.Errorf("without a pool, and ready: %v", got)
	}
}

// Whoever may create calls may name any environment, as often as they like.
func TestCallsThatNameAbsentEnvironmentsMakeNoSeries(t *testing.T) {
	env := types.NamespacedName{Namespace: "crowded", Name: "tools"}
	SetEnvironment(env, State{})
	defer ForgetEnvironment(env)
	tell := func(i int) {
		for _, namespace := range []string{"crowded", fmt.Sprint("namespace-", i)} {
			status := ranIn(fmt.Sprint("absent-", i))
			CountFinished(namespace, status)
			CountStored(namespace, status, "Lost", 0)
			CountSessionEnded(namespace, &v1alpha1.ToolSessionStatus{Reason: v1alpha1.ReasonEnvironmentNotFound, Environment: status.Environment})
			CountPoolFailed(types.NamespacedName{Namespace: namespace, Name: status.Environment.Name})
		}
	}
	tell(0)
	before := seriesOf(t, "")
	for i := range 10_000 {
		tell(i + 1)
	}
	after := seriesOf(t, "")
	for series := range after {
		if _, found := before[series]; !found {
			t.Errorf("new: %s", series)
		}
	}
	const failed = "toolcall_calls_finished_total{environment=Other,namespace=crowded,phase=Failed,reason=EnvironmentNotFound}"
	if got := after[failed] - before[failed]; got != 10_000 {
		t.Errorf("%g of 10000 calls were counted", got)
	}
}

func TestADeletedEnvironmentTakesItsSeriesAlong(t *testing.T) {
	first, second := types.NamespacedName{Namespace: "left", Name: "first"}, types.NamespacedName{Namespace: "left", Name: "second"}
	for range 3 { // Its controller shows an environment again and again.
		SetEnvironment(first, State{Ready: true, PoolDesired: 1})
		SetEnvironment(second, State{Ready: true})
	}
	CountFinished("left", ranIn("first"))
	CountFinished("left", ranIn("second"))
	CountFinished("left", ranIn("gone"))
	ForgetEnvironment(first)
	ForgetEnvironment(first)
	CountFinished("left", ranIn("first")) // Its last call ends after it.
	for series := range seriesOf(t, "left") {
		if strings.Contains(series, "environment=first") {
			t.Errorf("left: %s", series)
		}
	}
	got := seriesOf(t, "left")
	if n := got["toolcall_calls_finished_total{environment=Other,namespace=left,phase=Failed,reason=EnvironmentNotFound}"]; n != 2 {
		t.Errorf("%g calls count for no environment, want 2", n)
	}
	ForgetEnvironment(second)
	if left := seriesOf(t, "left"); len(left) != 0 {
		t.Errorf("a namespace without environments has %v", left)
	}
}

func TestEnvironmentsBeyondTheLimitShareSeries(t *testing.T) {
	t.Parallel()
	name := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: fmt.Sprint("namespace-", i%2), Name: fmt.Sprint("env-", i)}
	}
	e := newEnvironments(3, 2)
	for i := range 10 {
		e.set(name(i), State{})
	}
	counts := Counts{}
	for i := range 10 {
		counts[name(i)] = 1
	}
	want := map[[2]string]int{
		{Other, Other}: 0, {"namespace-0", "env-0"}: 1, {"namespace-1", "env-1"}: 1, {"namespace-0", "env-2"}: 1,
		{"namespace-0", Other}: 3, {"namespace-1", Other}: 4,
	}
	if diff := cmp.Diff(want, e.fold(counts)); diff != "" {
		t.Error(diff)
	}
	// A place that is free goes to the next that its controller looks at.
	e.forget(name(0))
	e.set(name(9), State{})
	var got [2]string
	e.count(name(9), func(namespace, environment string) { got = [2]string{namespace, environment} })
	if got != [2]string{"namespace-1", "env-9"} {
		t.Errorf("its labels are %v", got)
	}
	for i := range 10 {
		e.forget(name(i))
	}
	if len(e.names)+len(e.inNamespace) != 0 {
		t.Errorf("left: %v", e)
	}
}

func TestANamespaceTakesAShareOfTheSeries(t *testing.T) {
	t.Parallel()
	e := newEnvironments(3, 2)
	for i := range 10 {
		e.set(types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("env-", i)}, State{})
	}
	e.set(types.NamespacedName{Namespace: "late", Name: "tools"}, State{})
	if e.inNamespace["greedy"] != 2 || e.inNamespace["late"] != 1 {
		t.Errorf("got %v", e.inNamespace)
	}
}

// Calls end while environments come and go, and metrics are read.
func TestCountsAndDeletionsAtTheSameTime(t *testing.T) {
	env := types.NamespacedName{Namespace: "busy", Name: "tools"}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				SetEnvironment(env, State{Ready: true})
				CountFinished("busy", ranIn("tools"))
				ForgetEnvironment(env)
			}
		})
	}
	all.Go(func() {
		for range 20 {
			if _, err := crmetrics.Registry.Gather(); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	if left := seriesOf(t, "busy"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
