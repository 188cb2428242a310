package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/result"
)

// takeResult ends the call with what its runner reports, and acknowledges it once that is recorded.
func (r *ToolCallReconciler) takeResult(_ context.Context, s *scope) (bool, error) {
	if !s.bound() || s.session == nil {
		return false, nil
	}
	reported := s.session.Result()
	if reported == nil || reported.CallUID != string(s.call.UID) {
		return false, nil
	}
	if err := reported.Outcome.Validate(); err != nil {
		metrics.Reported(metrics.Refused)
		s.session.Refuse("the result can't be: " + err.Error())
		return false, nil
	}
	s.finish(reported)
	if s.ofPool() {
		r.keepJob(s)
	}
	session, uid := s.session, string(s.call.UID)
	s.after(func(context.Context) error {
		metrics.Reported(metrics.Recorded)
		// A runner that doesn't hear this sends the result again, and is answered by retire.
		_ = session.Ack(uid)
		return nil
	})
	if s.call.Status.Phase == v1alpha1.PhaseCancelled {
		r.removeJob(s)
	}
	return true, nil
}

// stopIfAsked cancels. A call that has not started ends at once; one that has, when its process is gone.
func (r *ToolCallReconciler) stopIfAsked(_ context.Context, s *scope) (bool, error) {
	if !s.call.Spec.Cancel {
		return false, nil
	}
	if !s.bound() {
		s.end(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, decide.Cancelled(s.call))
		if s.session != nil {
			session := s.session
			s.after(func(context.Context) error { session.Refuse("the call was cancelled"); return nil })
		}
		r.removeJob(s)
		return true, nil
	}
	if s.session != nil {
		_ = s.session.Cancel(string(s.call.UID))
		return false, nil
	}
	// Its runner isn't connected: the kubelet can stop it too.
	r.removeJob(s)
	return false, nil
}

// refuseEdited ends a call whose spec was changed before its runner had it.
func (r *ToolCallReconciler) refuseEdited(_ context.Context, s *scope) (bool, error) {
	var refused *rejection
	if !errors.As(decide.Edited(s.call), &refused) || s.bound() && !s.unassigned() {
		return false, nil
	}
	s.rejected(refused)
	if session := s.session; session != nil {
		s.after(func(context.Context) error { session.Refuse("the call was changed"); return nil })
	}
	r.removeJob(s)
	return true, nil
}

// lose ends a call whose pod is gone or overdue, with the copy of the result that the runner left in the pod
// if there is one, and otherwise without pretending to know.
func (r *ToolCallReconciler) lose(s *scope, pod *corev1.Pod) {
	terminated := terminatedState(pod)
	if terminated != nil {
		if left := r.lastWords(s, terminated.Message); left != nil {
			s.finish(left)
			return
		}
	}
	switch {
	case terminated != nil && terminated.Reason == "OOMKilled":
		s.end(v1alpha1.PhaseFailed, v1alpha1.ReasonOOMKilled, "the kernel killed the container for memory, the supervisor with it: raise resources.limits.memory of the environment")
		s.call.Status.ExitCode = result.Exit(result.NoExitCode)
		s.call.Status.Signal = "SIGKILL"
	case s.call.Spec.Cancel:
		s.end(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, "the call was cancelled and its pod removed; how far the command came is not known")
	case pod == nil:
		s.end(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, fmt.Sprintf("pod %s is gone and left no result; the command may have run", s.call.Status.Pod))
	case terminated != nil:
		s.end(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, sentence(fmt.Sprintf("pod %s ended and left no result; the command may have run", s.call.Status.Pod), pod.Status.Reason, terminated.Reason))
	default:
		s.end(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, fmt.Sprintf("pod %s was not heard of in time; the command may have run", s.call.Status.Pod))
	}
}

func terminatedState(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if pod == nil {
		return nil
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated != nil {
			return status.State.Terminated
		}
	}
	return nil
}

// lastWords reads the copy of the result that a runner leaves in its pod. Anything in the container can write
// there, so that only a copy counts that was made with the pod's token, which the command never sees.
func (r *ToolCallReconciler) lastWords(s *scope, message string) *wire.Result {
	words := &wire.LastWords{}
	if s.job == nil || json.Unmarshal([]byte(message), words) != nil {
		return nil
	}
	token := r.Identity.Token(s.job.Namespace, s.job.Name, string(s.job.UID))
	if !words.Check(token, string(s.call.UID)) {
		return nil
	}
	outcome, err := result.DecodeTermination([]byte(words.Outcome))
	if err != nil || outcome.Validate() != nil {
		return nil
	}
	return &wire.Result{CallUID: string(s.call.UID), Outcome: *outcome, Environment: wire.Environment{WorkingDir: outcome.WorkingDir}}
}

// retire looks after a call that has ended: it answers a runner that still reports, and deletes the call when
// its time is up.
func (r *ToolCallReconciler) retire(ctx context.Context, s *scope) (bool, error) {
	if s.call.DeletionTimestamp != nil {
		r.Hub.Dismiss(s.call.Namespace, s.call.Name, "the ToolCall is being deleted")
		r.Turns.Leave(client.ObjectKeyFromObject(s.call))
		return true, nil
	}
	if !s.call.Status.Phase.Terminal() {
		return false, nil
	}
	r.forget(client.ObjectKeyFromObject(s.call))
	if taken := r.Hub.Taken(string(s.call.UID)); taken != nil && taken != s.session {
		// It took a waiting pod that was never recorded as its own: the call ended before that, or another
		// one had been recorded by a write whose answer was lost.
		taken.Refuse("the call has ended")
		r.Hub.Settle(string(s.call.UID))
	}
	if s.session != nil {
		if err := r.release(ctx, s); err != nil {
			return true, err
		}
	}
	if err := r.endJobs(ctx, s); err != nil {
		return true, err
	}
	return true, r.expire(ctx, s)
}

// release lets the runner of a call that has ended go.
func (r *ToolCallReconciler) release(ctx context.Context, s *scope) error {
	if err := r.keepFinished(ctx, s); err != nil {
		return err
	}
	session, uid, reason := s.session, string(s.call.UID), s.call.Status.Reason
	s.after(func(context.Context) error {
		if session.Result() == nil {
			session.Refuse("the call has ended: " + reason)
			return nil
		}
		metrics.Reported(metrics.Repeated)
		_ = session.Ack(uid)
		return nil
	})
	return nil
}

// sinceFinished is when the call ended.
func sinceFinished(call *v1alpha1.ToolCall) time.Time {
	for _, c := range call.Status.Conditions {
		if c.Type == v1alpha1.ConditionFinished {
			return c.LastTransitionTime.Time
		}
	}
	return call.CreationTimestamp.Time
}

func upperFirst(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
