package calls

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
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
	call := &v1alpha1.ToolCall{Status: v1alpha1.ToolCallStatus{
		StartTime: ptr.To(metav1.NewMicroTime(at(300))), CompletionTime: ptr.To(metav1.NewMicroTime(at(310))),
		Timings:    &v1alpha1.CallTimings{StartedMilliseconds: ptr.To(int64(290))},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue}},
	}}
	var m marks
	m.see(&corev1.Pod{}, at(20))
	m.see(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, at(30))
	m.see(call, at(320))
	m.see(call, at(999))
	want := map[string]float64{
		stageReturned: 0.004, stagePod: 0.02, stageScheduled: 0.03, stageRunner: 0.294, stageProcess: 0.3, stageEnded: 0.31, stageFinished: 0.32,
	}
	got := m.offsets(&cluster.Sample{Created: began, Returned: at(4), Object: call})
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
}

func TestARateIsHeldOnlyWithinItsLimits(t *testing.T) {
	t.Parallel()
	// load has ten calls a second for ten seconds; those after slowFrom take that long, all others ten milliseconds.
	load := func(slowFrom int, seconds float64) []sample {
		samples := make([]sample, 100)
		for i, at := range arrivals(10, 10) {
			samples[i] = sample{Kind: kindWarm, Created: time.Unix(1000, 0).Add(at), Seconds: 0.01, Path: v1alpha1.PathWarm}
			if i >= slowFrom {
				samples[i].Seconds, samples[i].Path = seconds, v1alpha1.PathCold
			}
		}
		return samples
	}
	for name, c := range map[string]struct {
		samples []sample
		want    rateResult
	}{
		"quick":                             {load(100, 0), rateResult{Holds: true, WarmShare: 1}},
		"the last ten are on their way":     {load(90, 1), rateResult{Holds: true, WarmShare: 0.9, Behind: 9}},
		"p99 is over a second":              {load(98, 1.1), rateResult{WarmShare: 0.98, Behind: 1}},
		"more than a second's calls behind": {load(80, 2), rateResult{WarmShare: 0.8, Behind: 19}},
	} {
		got := judge(kindWarm, 10, c.samples)
		if got.Holds != c.want.Holds || got.WarmShare != c.want.WarmShare || got.Behind != c.want.Behind {
			t.Errorf("%s: %+v", name, got)
		}
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

func TestTablesAreOfWhatWasMeasured(t *testing.T) {
	t.Parallel()
	r := &Report{
		Samples: []sample{
			{Kind: kindJob, Seconds: 3}, {Kind: kindCold, Seconds: 0.75, Stages: map[string]float64{stageFinished: 0.75}},
		},
		Bursts: []burst{{Size: 5, Kind: kindWarm, WarmShare: 0.4, Seconds: 2}, {Size: 5, Kind: kindPod}},
		Rates:  []rateResult{{Kind: kindWarm, Rate: 2.5, Behind: 3, Holds: true}},
		Writes: map[string]*writeReport{kindCold: {Source: "s", Note: "n", Calls: 2, PerCall: &figures.Writes{ByName: map[string]float64{"create jobs": 1.5}}}},
	}
	r.compute(true)
	out := new(strings.Builder)
	figures.Print(out, r, true)
	for _, want := range []string{
		"| bare Job | 1 | 3.000 |", "| cold call / bare Job | 0.250 |", "| Finished is seen | 750.0 | +750.0 | 750.0 |",
		"| warm call | 5 | 0.000 | 0.000 | 0.000 | 2.000 | 40 % |", "| bare Pod | 5 | 0.000 | 0.000 | 0.000 | 0.000 |  |",
		"| warm call | 2.5 | 0 | 0.000 | 0.000 | 0.000 | 0 % | 3 | yes |",
		"per cold call: 1.50, of 2 calls, from s (n); refused: 0", "| create jobs | 1.50 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestAColdCallIsFasterThanTheLimit(t *testing.T) {
	t.Parallel()
	c := &Command{report: Report{Samples: []sample{{Kind: kindJob, Seconds: 3}, {Kind: kindCold, Seconds: 0.75}}}}
	c.report.compute(false)
	for limit, want := range map[float64]bool{0: true, 0.25: true, 0.24: false} {
		c.maxJobRatio = limit
		if err := c.Verdict(); (err == nil) != want {
			t.Errorf("limit %g: %v", limit, err)
		}
	}
}

func TestAColdCallMustNotTakeAWaitingPod(t *testing.T) {
	t.Parallel()
	took := &cluster.Sample{Created: time.Unix(10, 0), Ended: time.Unix(12, 0), Object: &v1alpha1.ToolCall{
		Status: v1alpha1.ToolCallStatus{Timings: &v1alpha1.CallTimings{Path: v1alpha1.PathWarm}},
	}}
	if s, err := newSample(kindWarm, took, time.Unix(9, 0)); err != nil || s.Seconds != 3 || s.Path != v1alpha1.PathWarm {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := newSample(kindCold, took, took.Created); err == nil {
		t.Error("a call that went warm is a sample of cold ones")
	}
}

// measured is a run with samples of warm calls and of Pods.
func measured(samples ...sample) *run {
	r := &run{Command: &Command{operatorNS: "ns", operatorSA: "op"}, activities: map[string]*activity{}}
	r.report.Samples = samples
	for _, kind := range []string{kindPod, kindImage, kindWarm} {
		f := &fixture{kind: kind, Subject: cluster.Calls(strings.ToLower(kind))}
		if kind != kindPod {
			f.environment = &v1alpha1.ExecutionEnvironment{}
		}
		r.fixtures = append(r.fixtures, f)
	}
	return r
}

// auditLine is a write of the operator in a namespace.
func auditLine(namespace string) string {
	return `{"stage":"ResponseComplete","verb":"patch","requestReceivedTimestamp":"2026-01-01T00:00:05.000000Z","user":{"username":"system:serviceaccount:ns:op"},"objectRef":{"resource":"toolcalls","namespace":"` + namespace + `"},"responseStatus":{"code":200}}` + "\n"
}

func writeAuditLog(t *testing.T, lines string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCallsWithoutASingleWriteAreNotBelieved(t *testing.T) {
	t.Parallel()
	r := measured(sample{Kind: kindWarm}, sample{Kind: kindWarm}, sample{Kind: kindPod})
	r.auditLog = writeAuditLog(t, auditLine("warm"))
	got, err := r.writeReports(time.Time{})
	if err != nil || len(got) != 1 || got[kindWarm].PerCall.Total() != 0.5 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := r.writeReports(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Error("writes of an earlier time are counted")
	}
	r.report.Samples = append(r.report.Samples, sample{Kind: kindImage})
	if _, err := r.writeReports(time.Time{}); err == nil {
		t.Error("calls without a single write are believed")
	}
}

func TestMetricsCountWritesByMethod(t *testing.T) {
	t.Parallel()
	const page = `# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="10.96.0.1:443",method="GET"} 99
rest_client_requests_total{code="200",host="10.96.0.1:443",method="PATCH"} 6
rest_client_requests_total{code="409",host="10.96.0.1:443",method="PATCH"} 1
rest_client_requests_total{code="201",host="10.96.0.1:443",method="POST"} 4
rest_client_requests_total{code="200",host="10.96.0.1:443",method="PUT"} 50
# TYPE toolcall_calls_finished_total counter
toolcall_calls_finished_total{phase="Failed",reason="NonZeroExit"} 1
toolcall_calls_finished_total{phase="Succeeded",reason="Completed"} 2
`
	after := newActivity()
	if err := after.addPage([]byte(page)); err != nil {
		t.Fatal(err)
	}
	before := &activity{writes: figures.Writes{ByName: map[string]float64{"PATCH": 2}}, finished: 1}
	r := measured(sample{Kind: kindWarm}, sample{Kind: kindWarm})
	r.activities[kindWarm] = newActivity()
	if err := r.activities[kindWarm].addDifference(before, after); err != nil {
		t.Fatal(err)
	}
	got, err := r.writeReports(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := &figures.Writes{ByName: map[string]float64{"PATCH": 2, "POST": 2}, Refused: 1}
	if diff := cmp.Diff(want, got[kindWarm].PerCall); diff != "" || got[kindWarm].Calls != 2 {
		t.Errorf("%s, %+v", diff, got[kindWarm])
	}
	if err := r.activities[kindWarm].addDifference(after, before); err == nil {
		t.Error("an operator that was restarted meanwhile is believed")
	}
}

func TestEachKindHasWhatItNeeds(t *testing.T) {
	t.Parallel()
	c := &Command{kinds: []string{kindWarm, kindFloor, kindImage, kindJob}, image: "i:1", withRunner: "i:2", runnerPath: "/r"}
	fixtures, err := newFixtures(c, nil, "bench-x")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, f := range fixtures {
		kinds = append(kinds, f.kind)
		made := f.Make("a")
		if made.GetNamespace() != "bench-x-"+strings.ToLower(f.kind) || made.GetName() != "a" {
			t.Errorf("%s makes %s/%s", f.kind, made.GetNamespace(), made.GetName())
		}
	}
	if diff := cmp.Diff([]string{kindFloor, kindJob, kindImage, kindWarm}, kinds); diff != "" {
		t.Fatal(diff)
	}
	image, warm := fixtures[2].environment.Spec, fixtures[3].environment.Spec
	if fixtures[0].environment != nil || fixtures[1].environment != nil || image.Image != "i:2" || image.RunnerPath != "/r" || warm.Image != "i:1" || warm.WarmPool == nil {
		t.Errorf("the environments are %+v and %+v", image, warm)
	}
}

func TestAnObjectsEndIsItsOwn(t *testing.T) {
	t.Parallel()
	job := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status}}}}
	}
	pod := func(phase corev1.PodPhase) *corev1.Pod { return &corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	for _, c := range []struct {
		kind       string
		object     client.Object
		done, fail bool
	}{
		{kindFloor, &v1alpha1.Skill{}, false, false},
		{kindFloor, &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Description: answer}}, true, false},
		{kindPod, pod(corev1.PodRunning), false, false}, {kindPod, pod(corev1.PodSucceeded), true, false}, {kindPod, pod(corev1.PodFailed), false, true},
		{kindJob, job(batchv1.JobComplete, corev1.ConditionFalse), false, false}, {kindJob, job(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue), false, false},
		{kindJob, job(batchv1.JobComplete, corev1.ConditionTrue), true, false}, {kindJob, job(batchv1.JobFailed, corev1.ConditionTrue), false, true},
	} {
		done, err := subjectOf(c.kind, "n", &corev1.PodSpec{}).Done(c.object)
		if done != c.done || (err != nil) != c.fail {
			t.Errorf("%s %+v: %t, %v", c.kind, c.object, done, err)
		}
	}
}

func TestBarePodIsTheOperatorsPodWithoutTheRunner(t *testing.T) {
	t.Parallel()
	spec, err := bareSpec(cluster.NewEnvironment("bench", "bench", "i:1"))
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
