package host

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/jobspec"
)

func podOf(job string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: job + "-pod", UID: types.UID(job + "-pod-uid")}}
	for _, c := range changes {
		c(pod)
	}
	return pod
}

func jobOf(job string, changes ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: job, UID: types.UID(job + "-uid")}}
	for _, c := range changes {
		c(j)
	}
	return j
}

func deletedJob(job *batchv1.Job) { job.DeletionTimestamp = ptr.To(metav1.Now()) }

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }

func endedJob(kind batchv1.JobConditionType) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
	}
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func TestAHostIsIdleOnceItsRunnerIsKnownToBeInItsPod(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	runner, _ := o.connectRunner(t, "a")
	stranger, _ := o.connectRunner(t, "b")
	for name, tc := range map[string]struct {
		host Host
		want bool
	}{
		"a Job alone":                       {Host{Job: jobOf("a")}, false},
		"no runner":                         {Host{Job: jobOf("a"), Pod: podOf("a")}, false},
		"a runner whose pod isn't seen yet": {Host{Job: jobOf("a"), Runner: runner}, false},
		"a runner of another pod":           {Host{Job: jobOf("a"), Pod: podOf("a"), Runner: stranger}, false},
		"its runner":                        {Host{Job: jobOf("a"), Pod: podOf("a", inPhase(corev1.PodRunning)), Runner: runner}, true},
		"its runner in a pod that is on its way out": {Host{Job: jobOf("a"), Pod: podOf("a", deleted), Runner: runner}, false},
		"its runner, and a Job that is deleted":      {Host{Job: jobOf("a", deletedJob), Pod: podOf("a"), Runner: runner}, false},
		"its runner, and a Job that failed":          {Host{Job: jobOf("a", endedJob(batchv1.JobFailed)), Pod: podOf("a"), Runner: runner}, false},
		"its runner, and a Job that is complete":     {Host{Job: jobOf("a", endedJob(batchv1.JobComplete)), Pod: podOf("a"), Runner: runner}, false},
		"its runner, and a pod that failed":          {Host{Job: jobOf("a"), Pod: podOf("a", inPhase(corev1.PodFailed)), Runner: runner}, false},
		"its runner, and a container that ended":     {Host{Job: jobOf("a"), Pod: podOf("a", container(jobspec.ContainerName, terminated("Completed", ""))), Runner: runner}, false},
		"its runner, and a sidecar that ended":       {Host{Job: jobOf("a"), Pod: podOf("a", container("istio-proxy", terminated("Error", ""))), Runner: runner}, true},
		"an ended pod before the one to come":        {Host{Job: jobOf("a"), Pod: podOf("a", inPhase(corev1.PodFailed), deleted)}, false},
	} {
		if got := IsIdle(tc.host); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestARunnerBelongsToThePodThatItNames(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	runner, _ := o.connectRunner(t, "a")
	sameName := podOf("a", func(pod *corev1.Pod) { pod.UID = "another" })
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"its pod":                    {podOf("a"), true},
		"another pod of that name":   {sameName, false},
		"another pod":                {podOf("b"), false},
		"its pod on its way out":     {podOf("a", deleted), false},
		"a pod without a UID at all": {&corev1.Pod{}, false},
	} {
		if got := IsRunnerOf(runner, tc.pod); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAPodFromBeforeTheSuspensionSaysNothingOfTheNext(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	resumed := func(job *batchv1.Job) { job.Status.StartTime = ptr.To(at(0)) }
	created := func(d time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.CreationTimestamp = at(d) }
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		job  *batchv1.Job
		want bool
	}{
		"a pod on its way out, older than the Job's start":   {podOf("a", deleted, created(-time.Minute)), jobOf("a", resumed), true},
		"a pod on its way out, younger than the Job's start": {podOf("a", deleted, created(time.Minute)), jobOf("a", resumed), false},
		"a pod that stays":                     {podOf("a", created(-time.Minute)), jobOf("a", resumed), false},
		"a Job that hasn't been let run again": {podOf("a", deleted, created(-time.Minute)), jobOf("a"), false},
	} {
		if got := IsFromBefore(tc.pod, tc.job); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
