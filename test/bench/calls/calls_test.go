package calls

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

func TestARateIsHeldOnlyWithinItsLimits(t *testing.T) {
	t.Parallel()
	// load has ten calls a second for ten seconds; those after slowFrom take that long, all others ten milliseconds.
	load := func(slowFrom int, seconds float64) []float64 {
		all := slices.Repeat([]float64{0.01}, 100)
		for i := slowFrom; i < len(all); i++ {
			all[i] = seconds
		}
		return all
	}
	for name, c := range map[string]struct {
		seconds []float64
		want    bool
	}{
		"quick":                             {load(100, 0), true},
		"the last ten are on their way":     {load(90, 1), true},
		"p99 is over a second":              {load(98, 1.1), false},
		"more than a second's calls behind": {load(80, 2), false},
	} {
		if got := holds(10, c.seconds, arrivals(10, 10)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if holds(2, slices.Repeat([]float64{1}, 8), make([]time.Duration, 8)) {
		t.Error("what is left behind isn't counted")
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

func TestEachKindMakesItsOwnObjects(t *testing.T) {
	t.Parallel()
	spec, err := bareSpec("i:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []kind{barePod, bareJob, coldCall, imageCall, warmCall, heldCall, approvedCall} {
		o := &producer{kind: k, room: &room{namespace: "n"}, spec: spec}
		made := o.make("a")
		if made.GetNamespace() != "n" || made.GetName() != "a" || fmt.Sprintf("%TList", made) != fmt.Sprintf("%T", k.list) {
			t.Errorf("%s makes %T %s/%s", k.title, made, made.GetNamespace(), made.GetName())
		}
	}
}

func TestAnObjectsEndIsItsOwn(t *testing.T) {
	t.Parallel()
	job := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status}}}}
	}
	pod := func(phase corev1.PodPhase) *corev1.Pod { return &corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	for _, c := range []struct {
		kind       kind
		object     client.Object
		done, fail bool
	}{
		{barePod, pod(corev1.PodRunning), false, false}, {barePod, pod(corev1.PodSucceeded), true, false}, {barePod, pod(corev1.PodFailed), false, true},
		{bareJob, job(batchv1.JobComplete, corev1.ConditionFalse), false, false}, {bareJob, job(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue), false, false},
		{bareJob, job(batchv1.JobComplete, corev1.ConditionTrue), true, false}, {bareJob, job(batchv1.JobFailed, corev1.ConditionTrue), false, true},
	} {
		done, err := c.kind.done(c.object)
		if done != c.done || (err != nil) != c.fail {
			t.Errorf("%s %+v: %t, %v", c.kind.title, c.object, done, err)
		}
	}
}

func TestBarePodIsTheOperatorsPodWithoutTheRunner(t *testing.T) {
	t.Parallel()
	spec, err := bareSpec("i:1")
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

func TestASessionWithAClaimIsSuspendedForIdleness(t *testing.T) {
	t.Parallel()
	session := suspended(cluster.NewSession("n", "kept", 1))
	if session.Spec.Workspace.Size.String() != "64Mi" || *session.Spec.IdleTimeoutSeconds != 1 {
		t.Errorf("got %+v", session.Spec)
	}
}

func TestEachClientHasItsCallsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	names := map[int][]string{}
	for _, turn := range []int{-1, 0} {
		err := eachClient(t.Context(), turn, 2, func(_ context.Context, client int, name string) error {
			mu.Lock()
			defer mu.Unlock()
			names[client] = append(names[client], name)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"turn-0-07-000000", "turn-0-07-000001", "turn-1-07-000000", "turn-1-07-000001"}
	if diff := cmp.Diff(want, names[7]); diff != "" || len(names) != clients {
		t.Errorf("%d clients, %s", len(names), diff)
	}
}

func TestFileActionsAreComparedWithWhatIsMeasured(t *testing.T) {
	t.Parallel()
	measured := []string{floorTitle}
	for i := range fileActions {
		of := &fileActions[i]
		if !slices.Contains(measured, of.against) || (of.action.File == nil) == (of.action.Code == nil) {
			t.Errorf("got %+v", of)
		}
		measured = append(measured, of.title)
	}
	if lines := strings.Count(fileText, "\n"); lines != 500 {
		t.Errorf("the text has %d lines", lines)
	}
}

func TestLiveMemoryIsWorkedOutFromTheNextCollection(t *testing.T) {
	t.Parallel()
	const page = `# TYPE go_memstats_next_gc_bytes gauge
go_memstats_next_gc_bytes 2.1504e+07
# TYPE go_memstats_stack_inuse_bytes gauge
go_memstats_stack_inuse_bytes 1.024e+06
# TYPE go_memstats_last_gc_time_seconds gauge
go_memstats_last_gc_time_seconds 12.5
`
	if live, at, err := readLive([]byte(page)); err != nil || live != 11000<<10 || at != 12.5 {
		t.Errorf("got %v, %v, %v", live, at, err)
	}
	if _, _, err := readLive([]byte(strings.ReplaceAll(page, "next_gc_bytes", "other"))); err == nil {
		t.Error("a page without the figures is believed")
	}
}

func TestEachLineSaysHowLongItTook(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Second).UnixNano()
	got, err := delays(strings.NewReader(fmt.Sprintf("%d\n%d\n", at, at)))
	if err != nil || len(got) != 2 || got[0] < 1 || got[1] < got[0] {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := delays(strings.NewReader("Traceback\n")); err == nil {
		t.Error("a line without a time is believed")
	}
}

// The pool is the environment's, and rooms without one have none.
func TestARoomsPoolIsItsEnvironments(t *testing.T) {
	t.Parallel()
	env := cluster.NewEnvironment("n", "p", "i")
	for _, c := range []struct {
		env  *v1alpha1.ExecutionEnvironment
		warm *v1alpha1.WarmPool
		want int
	}{{nil, nil, 0}, {env, nil, 0}, {env, &v1alpha1.WarmPool{Size: 3}, 3}} {
		if c.env != nil {
			c.env.Spec.WarmPool = c.warm
		}
		if got := (&room{environment: c.env}).pool(); got != c.want {
			t.Errorf("%d wait, not %d", got, c.want)
		}
	}
}
