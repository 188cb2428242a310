package jobspec_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/jobspec"
)

func ended(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.Job {
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
	return job
}

func slimCached(job *batchv1.Job) *batchv1.Job {
	read := job.DeepCopy()
	jobspec.SlimCached(read)
	return read
}

func TestOfAJobIsKeptWhatTheOperatorReads(t *testing.T) {
	t.Parallel()
	job := build(t)
	job.Spec.Suspend = ptr.To(true)
	got := slimmed(job)
	want := batchv1.JobSpec{
		Suspend: job.Spec.Suspend, ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds, TTLSecondsAfterFinished: job.Spec.TTLSecondsAfterFinished,
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(job.Labels, got.Labels) + cmp.Diff(job.OwnerReferences, got.OwnerReferences); diff != "" {
		t.Error(diff)
	}
	raw, err := json.Marshal(slimmed(buildWarm(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 2048 {
		t.Errorf("a waiting pod's Job takes %d bytes in the cache", len(raw))
	}
}

func TestAJobWithoutAnnotationsIsSlimmedToo(t *testing.T) {
	t.Parallel()
	job := build(t)
	job.Annotations = nil
	jobspec.Slim(job)
	if len(job.Annotations) != 1 {
		t.Errorf("annotations: %v", job.Annotations)
	}
}

func TestOfAnEndedCallsJobTheCacheKeepsNextToNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		kept bool
	}{
		"a call's Job that runs":              {build(t), true},
		"a call's Job that is suspended":      {ended(build(t), batchv1.JobSuspended), true},
		"a call's Job that is about to end":   {ended(build(t), batchv1.JobSuccessCriteriaMet), true},
		"a call's Job that is complete":       {ended(build(t), batchv1.JobComplete), false},
		"a call's Job that failed":            {ended(build(t), batchv1.JobFailed), false},
		"a waiting pod's Job that runs":       {buildWarm(t), true},
		"a waiting pod's Job that failed":     {ended(buildWarm(t), batchv1.JobFailed), true},
		"a waiting pod's Job that a call has": {ended(adopted(t), batchv1.JobComplete), false},
	} {
		got := slimCached(tc.job)
		if kept := got.Labels != nil && got.Annotations != nil; kept != tc.kept {
			t.Errorf("%s: labels %v, annotations %v", name, got.Labels, got.Annotations)
		}
		if got.Name == "" || cmp.Diff(tc.job.OwnerReferences, got.OwnerReferences) != "" || cmp.Diff(tc.job.Status, got.Status) != "" {
			t.Errorf("%s: left is %+v", name, got)
		}
	}
}

func adopted(t *testing.T) *batchv1.Job {
	t.Helper()
	job := buildWarm(t)
	jobspec.Adopt(job, call("c"), input(t).Decision, time.Now())
	return job
}

// A Job that the cache has stripped must not be taken for one that somebody changed: it is read anew.
func TestAStrippedJobHasNoDecision(t *testing.T) {
	t.Parallel()
	job := slimCached(ended(build(t), batchv1.JobComplete))
	if !jobspec.HasEnded(job) {
		t.Error("it can't be told from one that runs")
	}
	if _, ok := jobspec.ReadDecision(job, call("c"), sealer(t)); ok {
		t.Error("a decision is read from nothing")
	}
}

func TestAJobIsSuspendedUntilTheJobControllerHasTakenNote(t *testing.T) {
	t.Parallel()
	condition := func(status corev1.ConditionStatus) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: status}}
	}
	now := ptr.To(metav1.Now())
	for name, tc := range map[string]struct {
		suspend  *bool
		status   batchv1.JobStatus
		now, was bool
	}{
		"never":                          {nil, batchv1.JobStatus{StartTime: now}, false, false},
		"not yet seen by anybody":        {ptr.To(false), batchv1.JobStatus{}, false, false},
		"from its creation":              {ptr.To(true), batchv1.JobStatus{}, true, true},
		"noted":                          {ptr.To(true), batchv1.JobStatus{Conditions: condition(corev1.ConditionTrue)}, true, true},
		"while it runs":                  {ptr.To(true), batchv1.JobStatus{StartTime: now}, true, true},
		"let run, not noted":             {ptr.To(false), batchv1.JobStatus{Conditions: condition(corev1.ConditionTrue)}, true, true},
		"let run, noted":                 {ptr.To(false), batchv1.JobStatus{StartTime: now, Conditions: condition(corev1.ConditionFalse)}, false, true},
		"let run, half of that noted":    {nil, batchv1.JobStatus{StartTime: now, Conditions: condition(corev1.ConditionTrue)}, false, true},
		"let run, and not started since": {nil, batchv1.JobStatus{Conditions: condition(corev1.ConditionFalse)}, false, true},
	} {
		job := &batchv1.Job{Spec: batchv1.JobSpec{Suspend: tc.suspend}, Status: tc.status}
		if is, was := jobspec.IsSuspended(job), jobspec.WasSuspended(job); is != tc.now || was != tc.was {
			t.Errorf("%s: is %t, was %t", name, is, was)
		}
	}
}

func TestAJobStartsWhenItIsLetRun(t *testing.T) {
	t.Parallel()
	created, started := metav1.NewTime(time.Unix(100, 0)), metav1.NewTime(time.Unix(200, 0))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}}
	if got := jobspec.StartsFrom(job); !got.Equal(created.Time) {
		t.Errorf("before the Job controller saw it: %s", got)
	}
	job.Status.StartTime = &started
	if got := jobspec.StartsFrom(job); !got.Equal(started.Time) {
		t.Errorf("afterwards: %s", got)
	}
}
