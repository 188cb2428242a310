package toolsession

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// stopWait is how long a runner that isn't connected may take to end its calls, before its pod is ended; connectedStopWait
// how long one that is.
const (
	stopWait          = 30 * time.Second
	connectedStopWait = 60 * time.Second
)

// end ends a session that somebody wants to end, or whose time is up.
func (o *observation) end() effects {
	if o.session.DeletionTimestamp != nil || o.session.Spec.End {
		return o.endNow(v1alpha1.ReasonEndRequested, decide.EndRequested(o.session))
	}
	return o.endNow(v1alpha1.ReasonMaxLifetime, fmt.Sprintf("the session is older than %d s (maxLifetimeSeconds)", int(o.session.MaxLifetime().Seconds())))
}

// endNow writes the end, and then tells the runner. The next passes do the rest. Somebody may have taken the finalizer away,
// without which nothing of the session would be cleaned up.
func (o *observation) endNow(reason, message string) effects {
	e := effects{hold: true, status: o.ended(reason, message), wake: time.Millisecond}
	o.dismiss(&e, reason)
	return e
}

// dismiss tells the runner that serves the session to end, and turns one away that waits. One that another object has by now is that
// one's.
func (o *observation) dismiss(e *effects, reason string) {
	switch {
	case o.runner == nil || !o.runner.MayServe(string(o.session.UID)):
	case o.isBound() && !o.runner.IsWaiting():
		e.messages = append(e.messages, message{to: o.runner, end: reason})
	default:
		e.messages = append(e.messages, message{to: o.runner, refuse: "the session ended: " + reason})
	}
}

// retire looks after a session that has ended, until nothing is left of it. Its finalizer says that something may be.
func (r *Reconciler) retire(ctx context.Context, o *observation) (effects, error) {
	e := effects{release: true}
	o.dismiss(&e, o.session.Status.Reason)
	if o.session.IsHeld() {
		// Those that were there before the end, too. What is created afterwards holds nothing.
		until := o.since(v1alpha1.ConditionEnded).Add(lateCalls)
		left, err := r.hasCallsOf(ctx, o, func(call *v1alpha1.ToolCall) bool { return !call.CreationTimestamp.After(until) })
		if err != nil {
			return effects{}, err
		}
		if left {
			o.stopInTime(&e)
			return e, nil
		}
		if e.removeClaim, err = r.claimToRemove(ctx, o); err != nil {
			return effects{}, err
		}
		e.remove, e.letGo = host.Deletable(o.job), true
	}
	if bound := o.session.Status.Runner; bound != nil {
		e.forgetKey = bound.KeyHash
	}
	ttl := o.session.TTLAfterEnded()
	switch until := o.since(v1alpha1.ConditionEnded).Add(ttl); {
	case o.session.DeletionTimestamp != nil:
	case until.After(o.now):
		e.wakeAt(o, until)
	default:
		e.removeSession = true
	}
	return e, nil
}

// stopInTime ends the pod of a runner that was to end its calls and isn't connected, or is and doesn't. Results that only wait
// to be written are no reason.
func (o *observation) stopInTime(e *effects) {
	e.wakeIn(host.RetryPause)
	if !o.isBound() || host.Deletable(o.job) == nil || jobspec.HasEnded(o.job) || isExpired(o.job) {
		return
	}
	wait := stopWait
	if o.runner != nil {
		if o.runner.Load().Running() == 0 {
			return
		}
		wait = connectedStopWait
	}
	deadline := o.heardUntil(o.since(v1alpha1.ConditionReady).Add(wait))
	if o.now.Before(deadline) {
		e.wakeAt(o, deadline)
		return
	}
	e.expire = o.job
}

// isExpired says that the session's Job was told to end its pod.
func isExpired(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0) == 1
}

// claimToRemove is the claim of an ended session that keeps none; nil when there is none.
func (r *observer) claimToRemove(ctx context.Context, o *observation) (*corev1.PersistentVolumeClaim, error) {
	if keepsClaim(o.session) {
		return nil, nil
	}
	claim, err := r.liveClaim(ctx, o)
	if err != nil || claim == nil || claim.DeletionTimestamp != nil || !jobspec.IsClaimOf(claim, o.session) {
		return nil, err
	}
	return claim, nil
}

// lateCalls is how long after a session's end a call may say that it was created before that: the clocks of
// the operator and the API servers differ a little.
const lateCalls = 5 * time.Second

// hasCallsOf says whether the session has calls that have not ended and that the recorded runner may have got, or of which or says true.
func (r *observer) hasCallsOf(ctx context.Context, o *observation, or func(*v1alpha1.ToolCall) bool) (bool, error) {
	process := host.FindSessionHost(r.Hub, o.session)
	return r.Objects.AnyCall(ctx, o.session, func(call *v1alpha1.ToolCall) bool {
		return process.MayHave(call.UID, r.Earlier) || or != nil && or(call)
	})
}
