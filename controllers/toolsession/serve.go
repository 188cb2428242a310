package toolsession

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// serve looks after a session whose runner is connected.
func (r *Reconciler) serve(ctx context.Context, o *observation) (effects, error) {
	owner, hasBegun := o.runner.Owner()
	switch {
	case !hasBegun:
		return r.beginAgain(ctx, o)
	case !host.Serves(o.runner, o.session):
		return r.strange(ctx, o, owner.UID == string(o.session.UID))
	}
	if o.runner.Load().Foreground == 0 && o.runner.Taken() >= o.session.MaxCalls() {
		return o.endNow(v1alpha1.ReasonMaxCalls, fmt.Sprintf("the session took %d calls (maxCalls)", o.session.MaxCalls())), nil
	}
	if e := r.idle(o); e != nil {
		return *e, nil
	}
	e := effects{status: o.serving(), holdLater: true, adopt: poolJob(o.job)}
	e.wakeAt(o, o.lifetimeEnds())
	if until, limited := o.idleUntil(); limited {
		e.wakeAt(o, until)
	} else if idle := o.session.IdleTimeout(); idle > 0 {
		// No call has a session looked at that takes calls.
		e.wakeIn(idle)
	}
	return e, nil
}

// strange looks after a session whose recorded runner serves something else: it was given to another session, or, where
// it once served this one, says what can't be. Nobody else gets the session while calls have not ended that it may have had.
func (r *Reconciler) strange(ctx context.Context, o *observation, served bool) (effects, error) {
	// Its own word on its calls counts for nothing: those count, too, that say so themselves.
	left, err := r.hasCallsOf(ctx, o, func(call *v1alpha1.ToolCall) bool {
		in := call.Status.Session
		return in != nil && in.Incarnation > 0 && in.Incarnation == o.session.Status.Incarnation
	})
	if err != nil {
		return effects{}, err
	}
	if (left || served) && !o.hasWorkspace() {
		return o.endNow(v1alpha1.ReasonPodLost, "the session's process serves another incarnation of it; the session's files went with it"), nil
	}
	status := o.pending(v1alpha1.ReasonSessionStarting, "the pod was given to somebody else; the session gets another")
	if !left {
		return effects{status: unplaced(status), release: true, wake: time.Millisecond}, nil
	}
	e := effects{status: status, wake: host.RetryPause}
	if host.Deletable(o.job) != nil && metav1.IsControlledBy(o.job, o.session) && !isExpired(o.job) {
		e.expire = o.job
	}
	return e, nil
}

// beginAgain sends Begin to the recorded runner, which didn't hear it: the connection broke on the way, or the operator
// ended. A cache that is behind may show a process that another one has replaced.
func (r *Reconciler) beginAgain(ctx context.Context, o *observation) (effects, error) {
	now := &v1alpha1.ToolSession{}
	if err := r.Objects.Live.Get(ctx, o.key(), now); err != nil {
		return effects{}, client.IgnoreNotFound(err)
	}
	if now.UID != o.session.UID || now.ResourceVersion != o.session.ResourceVersion {
		return effects{wake: apicache.Lag}, nil
	}
	e := effects{status: o.serving(), holdLater: true, messages: []message{{to: o.runner, begin: o.begin(o.session.Status.Incarnation)}}, adopt: poolJob(o.job)}
	e.wakeAt(o, o.lifetimeEnds())
	return e, nil
}

// poolJob is the session's Job while that still belongs to a pool.
func poolJob(job *batchv1.Job) *batchv1.Job {
	if job == nil || job.DeletionTimestamp != nil || jobspec.PoolOf(job) == "" {
		return nil
	}
	return job
}

// idleUntil is when the session will have been without a call for too long, if none comes; not limited while it has one, or where it
// may stay idle. Background calls don't count, files and input that are on their way do. That counts anew when the runner connects: nobody
// knows when the last call was.
func (o *observation) idleUntil() (until time.Time, limited bool) {
	since, isIdle := o.runner.IdleSince()
	if ready := o.since(v1alpha1.ConditionReady); ready.After(since) {
		since = ready
	}
	limited = isIdle && o.calls.allowed == 0 && o.session.IdleTimeout() > 0 && o.session.Status.Phase == v1alpha1.SessionReady
	return since.Add(o.session.IdleTimeout()), limited
}

// idle suspends or ends a session that has been without a call for too long; nil when it hasn't.
func (r *Reconciler) idle(o *observation) *effects {
	until, limited := o.idleUntil()
	if !limited || o.now.Before(until) {
		return nil
	}
	if !o.runner.Pause() {
		// One was handed over since.
		return nil
	}
	message := fmt.Sprintf("the session had no call for %d s (idleTimeoutSeconds)", int(o.session.IdleTimeout().Seconds()))
	e := effects{}
	if o.hasWorkspace() {
		e = o.suspendNow(v1alpha1.ReasonIdleTimeout, message+"; the next call wakes it")
	} else {
		e = o.endNow(v1alpha1.ReasonIdleTimeout, message)
	}
	e.paused = true
	return &e
}

// watchLost looks after a session whose runner isn't connected.
func (r *Reconciler) watchLost(ctx context.Context, o *observation) (effects, error) {
	lost, err := Gone(ctx, r.Objects, o.session)
	if err != nil {
		return effects{}, err
	}
	if lost != nil {
		return r.replace(ctx, o, lost.Why)
	}
	e := effects{adopt: poolJob(o.job)}
	e.wakeAt(o, o.lifetimeEnds())
	if left := o.heardUntil(time.Time{}).Sub(o.now); left > 0 {
		// All runners dial in again after the operator's start.
		e.wakeIn(left)
		return e, nil
	}
	e.status = o.unheard()
	e.wakeIn(host.RetryPause)
	return e, nil
}

// replace ends a session whose runner is gone. One with a claim gets another pod, once no call is left that the runner may
// have got.
func (r *Reconciler) replace(ctx context.Context, o *observation, why string) (effects, error) {
	if !o.hasWorkspace() {
		return o.endNow(v1alpha1.ReasonPodLost, host.Capitalized(why)+"; the session's files went with it"), nil
	}
	left, err := r.hasCallsOf(ctx, o, nil)
	if err != nil {
		return effects{}, err
	}
	message := why + "; the session gets another pod"
	if o.session.Status.Reason == v1alpha1.ReasonPodLost {
		message = o.session.Status.Message
	}
	e := effects{status: o.pending(v1alpha1.ReasonPodLost, message), wake: host.RetryPause}
	if left {
		return e, nil
	}
	e.status, e.remove, e.release, e.wake = unplaced(e.status), host.Deletable(o.job), true, time.Millisecond
	return e, nil
}
