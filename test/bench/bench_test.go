package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/figures"
)

func TestTheStepsOfABreakdownAddUp(t *testing.T) {
	t.Parallel()
	samples := []sample{
		{Kind: kindCold, Stages: map[string]float64{stageReturned: 0.01, stageJob: 0.02, stageFinished: 0.5}},
		{Kind: kindCold, Stages: map[string]float64{stageReturned: 0.01, stageJob: 0.03, stageFinished: 0.6}},
		{Kind: kindWarm, Stages: map[string]float64{stageReturned: 9}},
	}
	var names []string
	sum := 0.0
	for _, s := range breakdown(samples, kindCold) {
		names = append(names, s.Name)
		sum += s.Step
	}
	if diff := cmp.Diff([]string{stageReturned, stageJob, stageFinished}, names); diff != "" {
		t.Error(diff)
	}
	if math.Abs(sum-0.5) > 1e-9 {
		t.Errorf("the steps add up to %v", sum)
	}
}

func TestStagesCountFromTheCreateRequest(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	at := func(ms int64) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	object := &v1alpha1.ToolCall{Status: v1alpha1.ToolCallStatus{
		StartTime: ptr.To(metav1.NewMicroTime(at(300))), CompletionTime: ptr.To(metav1.NewMicroTime(at(310))),
		Timings: &v1alpha1.CallTimings{StartedMilliseconds: ptr.To(int64(290))},
	}}
	w := &watched{marks: newMarks(), object: object}
	w.marks.see([]string{stageFinished}, at(320))
	w.marks.see([]string{stageFinished}, at(999))
	want := map[string]float64{stageReturned: 0.004, stageRunner: 0.294, stageProcess: 0.3, stageEnded: 0.31, stageFinished: 0.32}
	if diff := cmp.Diff(want, offsets(began, at(4), w), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
}

func TestARateIsHeldOnlyWithinItsLimits(t *testing.T) {
	t.Parallel()
	quick, slow := make([]sample, 100), make([]sample, 100)
	for i := range quick {
		quick[i] = sample{Kind: kindWarm, Seconds: 0.01, Path: v1alpha1.PathWarm}
		slow[i] = sample{Kind: kindWarm, Seconds: 0.01 + float64(i/98)}
	}
	if r := judge(kindWarm, 10, quick, 3); !r.Holds || r.WarmShare != 1 {
		t.Errorf("not held: %+v", r)
	}
	if r := judge(kindWarm, 10, quick, 11); r.Holds {
		t.Errorf("held with more than a second's calls behind: %+v", r)
	}
	if r := judge(kindWarm, 10, slow, 0); r.Holds || r.WarmShare != 0 {
		t.Errorf("held with a p99 over a second: %+v", r)
	}
}

func TestArrivalsComeByTheClock(t *testing.T) {
	t.Parallel()
	want := []time.Duration{0, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond}
	if diff := cmp.Diff(want, arrivals(2, 2)); diff != "" {
		t.Error(diff)
	}
	if got := arrivals(0.1, 1); len(got) != 1 {
		t.Errorf("a low rate has %d arrivals", len(got))
	}
}

func TestATrackerTellsEachRunItsEnd(t *testing.T) {
	t.Parallel()
	tr := newTracker(callDone)
	good, bad, gone, left := tr.expect("good"), tr.expect("bad"), tr.expect("gone"), tr.expect("left")
	object := func(name string, phase v1alpha1.Phase) *v1alpha1.ToolCall {
		c := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.ToolCallStatus{Phase: phase}}
		if phase.Terminal() {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue}}
		}
		return c
	}
	for _, event := range []watch.Event{
		{Type: watch.Added, Object: object("good", v1alpha1.PhasePending)},
		{Type: watch.Added, Object: object("stranger", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("good", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("bad", v1alpha1.PhaseFailed)},
		{Type: watch.Deleted, Object: object("gone", v1alpha1.PhasePending)},
	} {
		tr.take(event, time.Now())
	}
	tr.abandon(nil)
	if err := good.await(t.Context()); err != nil || good.seen.IsZero() {
		t.Errorf("good: %v at %v", err, good.seen)
	}
	for name, w := range map[string]*watched{"bad": bad, "gone": gone, "left": left, "late": tr.expect("late")} {
		if err := w.await(t.Context()); err == nil {
			t.Errorf("%s has no error", name)
		}
	}
}

func TestTablesComeAsTextAndAsMarkdown(t *testing.T) {
	t.Parallel()
	r := &report{Samples: []sample{{Kind: kindJob, Seconds: 3}, {Kind: kindCold, Seconds: 0.75}}}
	r.compute(&options{stages: true})
	for markdown, want := range map[bool][]string{
		false: {"bare Job", "3.000", "0.250"},
		true:  {"| bare Job | 1 | 3.000 |", "| cold call / bare Job | 0.250 |"},
	} {
		out := new(strings.Builder)
		r.print(out, markdown)
		for _, part := range want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%q is not in\n%s", part, out)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "saved.json")
	out, saved := new(strings.Builder), new(strings.Builder)
	r.print(out, true)
	if err := figures.Save(file, r); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-from", file, "-markdown"}, saved, saved); err != nil || saved.String() != out.String() {
		t.Errorf("%v; from the file it is\n%s", err, saved)
	}
	if err := run(t.Context(), []string{"-from", file + "x"}, saved, saved); err == nil {
		t.Error("a file that isn't there is printed")
	}
}

func TestCallsWithoutASingleWriteAreNotBelieved(t *testing.T) {
	t.Parallel()
	const log = `{"stage":"ResponseComplete","verb":"patch","requestReceivedTimestamp":"2026-01-01T00:00:05.000000Z","user":{"username":"op"},"objectRef":{"resource":"toolcalls","namespace":"warm"},"responseStatus":{"code":200}}` + "\n"
	file := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &auditCounter{figures.AuditLog{File: file, User: "op", Groups: map[string]string{"warm": kindWarm}}}
	got, err := c.report(t.Context(), []sample{{Kind: kindWarm}, {Kind: kindWarm}, {Kind: kindPod}})
	if err != nil || got[kindWarm].total() != 0.5 || got[kindPod] != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.report(t.Context(), []sample{{Kind: kindImage}}); err == nil {
		t.Error("calls without a single write are believed")
	}
}

func TestMetricsCountWritesByMethod(t *testing.T) {
	t.Parallel()
	text := `# HELP rest_client_requests_total Number of HTTP requests
rest_client_requests_total{code="200",host="10.96.0.1:443",method="GET"} 99
rest_client_requests_total{code="200",host="10.96.0.1:443",method="PATCH"} 6
rest_client_requests_total{code="409",host="10.96.0.1:443",method="PATCH"} 1
rest_client_requests_total{code="201",host="10.96.0.1:443",method="POST"} 4
rest_client_requests_total{code="200",host="10.96.0.1:443",method="PUT"} 50
toolcall_calls_finished_total{phase="Failed",reason="NonZeroExit"} 1
toolcall_calls_finished_total{phase="Succeeded",reason="Completed"} 2
`
	got := &clientMetrics{writes: map[string]float64{}}
	if err := got.add([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"PATCH": 6, "POST": 4}, got.writes); diff != "" {
		t.Error(diff)
	}
	if got.refused != 1 || got.finished != 3 {
		t.Errorf("got %+v", got)
	}
	sum := &clientMetrics{writes: map[string]float64{"PATCH": 1}}
	sum.addDifference(&clientMetrics{writes: map[string]float64{"PATCH": 2}, finished: 1}, got)
	if diff := cmp.Diff(map[string]float64{"PATCH": 5, "POST": 4}, sum.writes); diff != "" || sum.finished != 2 {
		t.Errorf("%s, %+v", diff, sum)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-n", "-1"}, {"-bursts", "0"}, {"-bursts", "10,x"}, {"-bursts", "101"}, {"-rates", "0"}, {"-rates", "NaN"}, {"-rates", "2,1"},
		{"-rate-seconds", "0"}, {"-pool", "0"}, {"-only", "all"}, {"-kinds", ""}, {"-kinds", "Cron"}, {"more"}, {"-nope"},
	} {
		if _, err := parse(args, new(strings.Builder)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parse([]string{"-n", "3", "-bursts", "", "-rates", "1, 2.5", "-only", "rates"}, new(strings.Builder))
	if err != nil || o.rounds != 3 || len(o.bursts) != 0 || !cmp.Equal(o.rates, []float64{1, 2.5}) || o.has(partRounds) || !o.has(partRates) || o.operatorUser() != "system:serviceaccount:toolcall-system:toolcall-operator" {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestBarePodIsTheOperatorsPodWithoutTheRunner(t *testing.T) {
	t.Parallel()
	spec, err := bareSpec(environment("bench", "bench", "i:1"))
	if err != nil {
		t.Fatal(err)
	}
	c := spec.Containers[0]
	if c.Image != "i:1" || !cmp.Equal(c.Command, []string{"true"}) || len(spec.Volumes)+len(c.VolumeMounts)+len(c.Env) != 0 {
		t.Errorf("got %+v", spec)
	}
	if spec.SecurityContext.RunAsNonRoot == nil || !*spec.SecurityContext.RunAsNonRoot || c.SecurityContext.Capabilities == nil {
		t.Errorf("the security settings are gone: %+v", spec)
	}
}
