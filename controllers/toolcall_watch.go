package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// How long to wait before looking for what went wrong.
const (
	// cacheLag is how long the cache may take to show something that is known to be there.
	cacheLag = 50 * time.Millisecond
	// podWait is how long a Job may have no pod before its Events are asked why.
	podWait = time.Second
	// lostWait is how long a pod that ended may take for its runner's last words to arrive.
	lostWait = 2 * time.Second
	// runSlack is what a runner may take, over the limit and the grace, until its result is here.
	runSlack = 60 * time.Second
	// longestRun is the highest timeouts.maxSeconds that the API takes.
	longestRun = 7 * 24 * time.Hour
)

// watchStart looks after a call whose runner has not said hello: it ends the call when that can't happen any
// more, and at the latest when its time is up.
func (r *ToolCallReconciler) watchStart(ctx context.Context, s *scope) (bool, error) {
	if s.bound() || s.job == nil || s.record == nil {
		return false, nil
	}
	if r.sayAccepted(ctx, s) {
		return true, nil
	}
	if suspended(s.job) {
		r.watchSuspended(s)
		return true, nil
	}
	pod, err := r.currentPod(ctx, s.job)
	if err != nil {
		return true, err
	}
	found, err := r.diagnose(ctx, s, pod)
	if err != nil {
		return true, err
	}
	if found != nil && found.credential {
		if r.credential(ctx, s) {
			return true, nil
		}
		found = nil
	}
	deadline := startsFrom(s.job).Add(time.Duration(s.record.StartTimeoutSeconds) * time.Second)
	switch {
	case found != nil && found.final:
		s.fail(found.reason, found.message)
	case !s.now.Before(deadline):
		late := startTimeout(s.record.StartTimeoutSeconds, found)
		if s.hindrance != nil {
			late.message += ": " + s.hindrance.Error()
		}
		s.fail(late.reason, late.message)
	default:
		s.wakeIn(deadline.Sub(s.now))
		if pod == nil {
			s.wakeIn(podWait)
		}
		return false, nil
	}
	r.removeJob(s)
	return true, nil
}

func (r *ToolCallReconciler) diagnose(ctx context.Context, s *scope, pod *corev1.Pod) (*finding, error) {
	if pod != nil {
		return diagnosePod(pod, s.job.Name), nil
	}
	if found := diagnoseJob(s.job); found != nil {
		return found, nil
	}
	if s.now.Sub(startsFrom(s.job)) < podWait {
		return nil, nil
	}
	events := &corev1.EventList{}
	err := r.Live.List(ctx, events, client.InNamespace(s.call.Namespace), client.Limit(10), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.uid": string(s.job.UID), "reason": "FailedCreate"}.AsSelector(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the Job's Events: %w", err)
	}
	if len(events.Items) == 0 {
		return nil, nil
	}
	return &finding{final: true, reason: v1alpha1.ReasonPodRejected, message: "the pod was refused: " + events.Items[0].Message}, nil
}

// watchRun looks after a call whose command may have started: when its pod is gone and the runner has not
// come back with a result, what the pod left behind is all there is.
func (r *ToolCallReconciler) watchRun(ctx context.Context, s *scope) (bool, error) {
	if !s.bound() {
		return false, nil
	}
	if s.session != nil && s.job != nil {
		s.wakeIn(s.runDeadline().Sub(s.now))
		if s.now.Before(s.runDeadline()) {
			return false, nil
		}
	}
	pod, err := r.boundPod(ctx, s)
	if err != nil {
		return true, err
	}
	switch {
	case pod != nil && s.now.Before(s.runDeadline()) && !ended(pod):
		s.wakeIn(s.runDeadline().Sub(s.now))
		return false, nil
	case pod != nil && ended(pod) && s.session != nil:
		s.wakeIn(lostWait)
		return false, nil
	}
	r.lose(s, pod)
	r.removeJob(s)
	return true, nil
}

// boundPod is the pod that was recorded, read past the cache before it is believed to be gone or ended.
func (r *ToolCallReconciler) boundPod(ctx context.Context, s *scope) (*corev1.Pod, error) {
	key := types.NamespacedName{Namespace: s.call.Namespace, Name: s.call.Status.Pod}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		pod := &corev1.Pod{}
		err := reader.Get(ctx, key, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get the call's pod: %w", err)
		}
		if err == nil && string(pod.UID) == s.call.Status.Runner.PodUID {
			return pod, nil
		}
	}
	return nil, nil
}

// runDeadline is when a call that started must be over, whatever its runner does.
func (s *scope) runDeadline() time.Time {
	limit := time.Duration(jobspec.GraceSeconds) * time.Second
	if s.record != nil {
		limit += time.Duration(s.record.TimeoutMilliseconds) * time.Millisecond
	} else {
		// What was decided isn't known any more: the longest that a policy can allow.
		limit += longestRun
	}
	started := meta.FindStatusCondition(s.call.Status.Conditions, v1alpha1.ConditionStarted)
	if started == nil {
		return s.now
	}
	return started.LastTransitionTime.Add(limit + runSlack)
}

// removeJob deletes the Job and its pod once the call's end is recorded. The kubelet's SIGTERM has the
// runner stop whatever still runs.
func (r *ToolCallReconciler) removeJob(s *scope) {
	if s.job == nil || s.job.DeletionTimestamp != nil {
		return
	}
	job := s.job
	s.after(func(ctx context.Context) error {
		err := r.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the call's Job: %w", err)
		}
		return nil
	})
}
