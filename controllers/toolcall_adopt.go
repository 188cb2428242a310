package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/jobspec"
)

// adopt gives an accepted call a pod that waits, if there is one: the write that records the pod in the call is
// the adoption. It can be lost half way and found again; the runner stays the call's until it is settled. The
// Job's ownership follows that write. With no pod waiting, launch makes one: a call never waits for the pool.
func (r *ToolCallReconciler) adopt(ctx context.Context, s *scope) (bool, error) {
	if s.bound() {
		return false, r.ensureAdopted(ctx, s)
	}
	if s.job != nil || s.environment == nil || poolSize(s.environment) == 0 {
		return false, nil
	}
	if jobspec.ChosenQueue(s.environment, s.call) != "" {
		// What waits was admitted by the environment's own queue.
		return false, nil
	}
	template, err := r.poolTemplate(ctx, s.environment, s.fallback, r.Runtime)
	if err != nil || !covers(template.Refs, s.refs) {
		return false, err
	}
	hash, err := jobspec.TemplateHash(template.WarmInput)
	if err != nil {
		return false, err
	}
	session := r.Hub.Take(hash, s.call.Name, string(s.call.UID))
	if session == nil {
		return false, nil
	}
	job := &batchv1.Job{}
	key := types.NamespacedName{Namespace: s.call.Namespace, Name: session.Hello().Job}
	if err := r.Get(ctx, key, job); err != nil || string(job.UID) != session.Hello().JobUID || job.DeletionTimestamp != nil || suspended(job) {
		// It is on its way out: this call starts its own.
		session.Refuse("the pod's Job is gone")
		r.Hub.Settle(string(s.call.UID))
		return false, client.IgnoreNotFound(err)
	}
	s.session, s.job = session, job
	s.started()
	assignment, err := r.assignment(s)
	if err != nil {
		return true, err
	}
	r.handOver(s, assignment)
	s.wakeIn(adoptWait)
	return true, nil
}

// adoptWait is when the Job of a call that took a waiting pod becomes the call's own, and the pool is refilled, if
// the call hasn't ended before: most have. Neither is to hold up the result of a short call.
const adoptWait = 50 * time.Millisecond

// covers says whether a pod with the refs of its pool has all that a call needs.
func covers(pool, call []corev1.EnvVar) bool {
	have := map[string]bool{}
	for _, v := range pool {
		have[v.Name] = true
	}
	for _, v := range call {
		if !have[v.Name] {
			return false
		}
	}
	return true
}

// ensureAdopted moves the Job of a call that was given a waiting pod to the call, with which it then goes. What was
// decided is decided again: it is only kept there. A call that may not run any more, meanwhile, still keeps what it has.
func (r *ToolCallReconciler) ensureAdopted(ctx context.Context, s *scope) error {
	if !s.ofPool() {
		return nil
	}
	if left := s.assigned().Add(adoptWait).Sub(s.now); left > 0 {
		s.wakeIn(left)
		return nil
	}
	if s.record == nil {
		var rejected *rejection
		var open *undecided
		status := s.call.Status.DeepCopy()
		err := r.decide(ctx, s)
		s.call.Status = *status
		if errors.As(err, &open) {
			// The call goes on meanwhile.
			s.wakeIn(open.again)
			return nil
		}
		if err != nil && !errors.As(err, &rejected) {
			return err
		}
	}
	r.keepJob(s)
	return nil
}

// ofPool says that the Job is the one of the call's runner, and still the pool's.
func (s *scope) ofPool() bool {
	return s.job != nil && s.session != nil && s.session.Hello().JobUID == string(s.job.UID) && len(poolOf(s.job)) > 0
}

// keepJob makes the adopted Job the call's own, and has the pool refilled.
func (r *ToolCallReconciler) keepJob(s *scope) {
	before, record, call, now := s.job, s.record, s.call, s.now
	s.after(func(ctx context.Context) error {
		job := before.DeepCopy()
		if record == nil {
			jobspec.Own(job, call)
		} else if err := jobspec.Adopt(job, call, record, now, r.Identity); err != nil {
			return err
		}
		if err := r.Patch(ctx, job, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("make the waiting pod's Job the call's own: %w", err)
		}
		for _, pool := range poolOf(before) {
			r.Pools.Wake(types.NamespacedName{Namespace: before.Namespace, Name: pool})
		}
		return nil
	})
}

// keepFinished does the same for a call that ended before it was done, as long as its runner waits to hear that.
func (r *ToolCallReconciler) keepFinished(ctx context.Context, s *scope) error {
	hello := s.session.Hello()
	if hello.Pool == "" {
		return nil
	}
	job := &batchv1.Job{}
	err := r.Get(ctx, types.NamespacedName{Namespace: s.call.Namespace, Name: hello.Job}, job)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get the call's Job: %w", err)
	}
	if s.job = job; s.ofPool() {
		r.keepJob(s)
	}
	return nil
}

// assigned is when it was recorded which pod has the call, as well as this operator knows.
func (s *scope) assigned() time.Time {
	if t := s.call.Status.Timings; t != nil && t.StartedMilliseconds != nil {
		return s.seen.Add(time.Duration(*t.StartedMilliseconds) * time.Millisecond)
	}
	return s.now
}

// unassigned says that the recorded runner waits for a call whose decision is not kept anywhere yet.
func (s *scope) unassigned() bool { return s.session != nil && s.session.CallUID() == "" }
