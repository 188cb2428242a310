package controllers

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/jobspec"
)

// adopt gives an accepted call a pod that waits, if there is one: the write that records the pod in the call is
// the adoption. It can be lost half way and found again; the runner stays the call's until it is settled. The
// Job's ownership follows that write. With no pod waiting, launch makes one: a call never waits for the pool.
func (r *ToolCallReconciler) adopt(ctx context.Context, s *scope) (bool, error) {
	if s.bound() {
		return false, r.ensureAdopted(s)
	}
	if s.job != nil || s.environment == nil || poolSize(s.environment) == 0 {
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
	if err := r.Get(ctx, key, job); err != nil || string(job.UID) != session.Hello().JobUID || job.DeletionTimestamp != nil {
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
	r.keepJob(s)
	environment := client.ObjectKeyFromObject(s.environment)
	s.after(func(context.Context) error { r.Pools.Wake(environment); return nil })
	return true, nil
}

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

// ensureAdopted moves the Job of a call that was given a waiting pod to the call, if the pass that did it was
// cut short. As long as it is the environment's it goes with that.
func (r *ToolCallReconciler) ensureAdopted(s *scope) error {
	if s.job == nil || s.session == nil || s.session.Hello().JobUID != string(s.job.UID) || len(poolOf(s.job)) == 0 {
		return nil
	}
	r.keepJob(s)
	return nil
}

// keepJob makes the adopted Job the call's own.
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
		return nil
	})
}

// unassigned says that the recorded runner waits for a call whose decision is not kept anywhere yet.
func (s *scope) unassigned() bool { return s.session != nil && s.session.CallUID() == "" }
