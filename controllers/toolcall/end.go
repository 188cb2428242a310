package toolcall

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
)

// dismiss turns the runner of a call that is being deleted away.
func (r *Reconciler) dismiss(ctx context.Context, o *observation) (effects, error) {
	why := "the ToolCall is being deleted"
	e := effects{release: true, forget: true, forgetResult: true}
	switch {
	case o.session != nil:
		o.session.letGo(o.call, &e)
	case o.runner.MayServe(string(o.call.UID)):
		e.messages = append(e.messages, message{to: o.runner, refuse: why})
	}
	if len(o.call.Finalizers) == 0 || o.call.Status.Phase.Terminal() {
		return e, nil
	}
	// It stays until others are done with it, and ends now.
	o, err := r.withItsAction(ctx, o)
	if err != nil {
		return effects{}, err
	}
	e.remove = host.Deletable(o.job)
	if o.isHandedOver() && !o.isUnassigned() {
		e.status = o.end(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, "the call was deleted; how far the command came is not known")
	} else {
		e.status = o.neverStarted(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, "the call was deleted before the command started")
	}
	return e, nil
}

// cancel ends a call whose command was not handed over.
func (r *Reconciler) cancel(ctx context.Context, o *observation) (effects, error) {
	o, err := r.withItsAction(ctx, o)
	if err != nil {
		return effects{}, err
	}
	e := effects{remove: host.Deletable(o.job), release: true}
	why := "the call was cancelled"
	if edited := decide.Edited(o.call); edited != nil && !o.call.Spec.Cancel {
		why = "the call was edited"
		e.status = o.refuse(edited)
	} else {
		e.status = o.neverStarted(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, decide.Cancelled(o.call))
	}
	if o.runner.MayServe(string(o.call.UID)) {
		e.messages = append(e.messages, message{to: o.runner, refuse: why})
	}
	return e, nil
}

// retire looks after a call that has ended: it answers a runner that still reports, and deletes what would start again.
func (r *Reconciler) retire(ctx context.Context, o *observation) (effects, error) {
	// Somebody else may have written the end, or the answer to that write was lost.
	e := effects{release: true, forgetResult: true, forget: true, keep: true}
	if o.runner.MayServe(string(o.call.UID)) {
		if err := r.letGo(ctx, o, &e); err != nil {
			return effects{}, err
		}
	}
	if o.session != nil {
		o.session.letGo(o.call, &e)
		return e, nil
	}
	var err error
	if o.runner == nil {
		if e.adopt, err = r.stillOfPool(ctx, o.call); err != nil {
			return effects{}, err
		}
	}
	if e.remove, err = r.startsAgain(ctx, o.call); err != nil {
		return effects{}, err
	}
	return e, nil
}

// stillOfPool is the Job of an ended call that took a waiting pod, where that Job didn't become the call's own: the pool would take the end
// of its pod for a failure. Nil where there is none. The cache alone is asked: most of these Jobs are the call's own by now.
func (r *observer) stillOfPool(ctx context.Context, call *v1alpha1.ToolCall) (*batchv1.Job, error) {
	if call.Status.Runner == nil || call.Status.Job == "" {
		return nil, nil
	}
	job := &batchv1.Job{}
	if err := r.Objects.Get(ctx, types.NamespacedName{Namespace: call.Namespace, Name: call.Status.Job}, job); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if job.DeletionTimestamp != nil || jobspec.PoolOf(job) == "" {
		return nil, nil
	}
	return job, nil
}

// letGo answers the runner of a call that has ended. One whose output isn't stored yet is kept.
func (r *Reconciler) letGo(ctx context.Context, o *observation, e *effects) error {
	hello := o.runner.Hello()
	if hello.Pool != "" {
		job, err := r.Objects.Job(ctx, types.NamespacedName{Namespace: o.call.Namespace, Name: hello.Job})
		if err != nil {
			return err
		}
		if job != nil && string(job.UID) == hello.JobUID && jobspec.PoolOf(job) != "" {
			e.adopt = job
		}
	}
	uid := string(o.call.UID)
	held, has := o.runner.HeldCall(uid)
	switch {
	case output.IsStoring(&o.call.Status):
		e.messages = append(e.messages, message{to: o.runner, record: uid})
		return nil
	case !has || !held.HasEnded():
		e.messages = append(e.messages, message{to: o.runner, refuse: "the call has ended: " + o.call.Status.Reason})
		return nil
	case !held.IsRecorded:
		e.reported = metrics.ReportRepeated
	}
	e.messages = append(e.messages, message{to: o.runner, ack: uid})
	return nil
}

// startsAgain are the Jobs of an ended call that will have a pod, or have one, that isn't the one which ran the call. Of
// a call that never ran these are all: the pass that ended it was cut short before it deleted them. Of one that ran, a
// queue that takes a running Job's place leaves a Job that has neither completed nor failed, and lets it run later: with
// a pod that no call is for, and that holds its quota.
func (r *observer) startsAgain(ctx context.Context, call *v1alpha1.ToolCall) ([]*batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := r.Objects.List(ctx, jobs, client.InNamespace(call.Namespace), client.MatchingFields{apicache.IndexJobCall: string(call.UID)}); err != nil {
		return nil, fmt.Errorf("list the ended call's Jobs: %w", err)
	}
	var again []*batchv1.Job
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if jobspec.HasEnded(job) || job.DeletionTimestamp != nil {
			continue
		}
		if bound := call.Status.Runner; bound != nil && !jobspec.IsSuspended(job) {
			pod, err := host.CurrentPod(ctx, r.Objects, job)
			if err != nil {
				return nil, err
			}
			if pod == nil || string(pod.UID) == bound.PodUID {
				continue
			}
		}
		again = append(again, job)
	}
	return again, nil
}
