package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// suspended says that a Job isn't let run, by a queue mostly: it has no pod, or is losing the one that it had. One
// that is let run again counts as suspended until the Job controller has taken note.
func suspended(job *batchv1.Job) bool {
	if ptr.Deref(job.Spec.Suspend, false) {
		return true
	}
	return job.Status.StartTime == nil && jobIs(job, batchv1.JobSuspended)
}

// wasSuspended says that somebody suspends a Job, or did and let it run again.
func wasSuspended(job *batchv1.Job) bool {
	return suspended(job) || slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended
	})
}

func jobIs(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// jobOver says that a Job has ended: its pod has, and it will have no other.
func jobOver(job *batchv1.Job) bool {
	return jobIs(job, batchv1.JobComplete) || jobIs(job, batchv1.JobFailed)
}

// startsFrom is when a Job could start: the Job controller sets the time when the Job is let run, and clears it
// when it is suspended.
func startsFrom(job *batchv1.Job) time.Time {
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time
	}
	return job.CreationTimestamp.Time
}

// fromBefore says that a pod is on its way out since its Job was suspended, and says nothing of the one to come.
func fromBefore(pod *corev1.Pod, job *batchv1.Job) bool {
	return pod.DeletionTimestamp != nil && job.Status.StartTime != nil && pod.CreationTimestamp.Before(job.Status.StartTime)
}

// currentPod is the Job's pod of the time since the Job could start.
func (r *ToolCallReconciler) currentPod(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	pod, err := r.podOf(ctx, job)
	if err != nil || pod == nil || fromBefore(pod, job) {
		return nil, err
	}
	return pod, nil
}

// watchSuspended looks after a call whose Job isn't let run. No time limit runs meanwhile, and that there is no pod
// is as it should be: only the Job's end ends the call, or its cancellation.
func (r *ToolCallReconciler) watchSuspended(s *scope) {
	if found := diagnoseJob(s.job); found != nil {
		s.fail(found.reason, found.message)
		r.removeJob(s)
	}
}

// held says whether the call's Job may start.
func (s *scope) held() {
	if suspended(s.job) {
		s.condition(v1alpha1.ConditionStarted, false, v1alpha1.ReasonSuspended, suspendedMessage(s.job))
		return
	}
	started := meta.FindStatusCondition(s.call.Status.Conditions, v1alpha1.ConditionStarted)
	if started != nil && started.Reason == v1alpha1.ReasonSuspended {
		s.condition(v1alpha1.ConditionStarted, false, v1alpha1.ReasonNotStarted, "the pod has not started")
	}
}

func suspendedMessage(job *batchv1.Job) string {
	if queue := job.Labels[jobspec.LabelQueue]; queue != "" {
		return fmt.Sprintf("the call's Job is suspended: it waits in queue %q", queue)
	}
	return "the call's Job is suspended: it waits until its spec.suspend is false"
}

// endJobs deletes what of an ended call would start again. A queue that takes a running Job's place leaves a Job that has
// neither completed nor failed, and lets it run later: with a pod that no call is for, and that holds its quota.
func (r *ToolCallReconciler) endJobs(ctx context.Context, s *scope) error {
	jobs := &batchv1.JobList{}
	if err := r.List(ctx, jobs, client.InNamespace(s.call.Namespace), client.MatchingFields{indexCall: string(s.call.UID)}); err != nil {
		return fmt.Errorf("list the ended call's Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		again, err := r.startsAgain(ctx, job, s.call)
		if err != nil {
			return err
		}
		if again {
			s.job = job
			r.removeJob(s)
		}
	}
	return nil
}

// startsAgain says that a Job will have a pod, or has one, that isn't the one which ran the call.
func (r *ToolCallReconciler) startsAgain(ctx context.Context, job *batchv1.Job, call *v1alpha1.ToolCall) (bool, error) {
	if jobOver(job) {
		return false, nil
	}
	if suspended(job) {
		return true, nil
	}
	pod, err := r.currentPod(ctx, job)
	if err != nil || pod == nil {
		return false, err
	}
	return call.Status.Runner == nil || string(pod.UID) != call.Status.Runner.PodUID, nil
}
