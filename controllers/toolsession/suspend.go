package toolsession

import (
	"context"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/host"
)

const suspendedMessage = "the session is suspended: calls wait until its spec.suspend is false"

// suspendNow writes the suspension, and then tells the runner. The next passes do the rest.
func (o *observation) suspendNow(reason, message string) effects {
	e := effects{status: o.suspended(reason, message), wake: time.Millisecond}
	o.dismiss(&e, v1alpha1.ReasonSessionSuspended)
	return e
}

// stop waits for the calls that the runner may have got, and then has nobody have the session.
func (r *Reconciler) stop(ctx context.Context, o *observation) (effects, error) {
	e := effects{}
	o.dismiss(&e, v1alpha1.ReasonSessionSuspended)
	if o.isBound() {
		left, err := r.hasCallsOf(ctx, o, nil)
		if err != nil {
			return effects{}, err
		}
		if left {
			o.stopInTime(&e)
			return e, nil
		}
	}
	status := o.status(v1alpha1.SessionSuspended, o.session.Status.Reason, o.session.Status.Message)
	status.Conditions = o.session.Status.DeepCopy().Conditions
	if !o.isBound() && o.job != nil {
		// It may have had a pod. The name of its Job isn't used again.
		status.Incarnation++
	}
	e.status, e.remove, e.release, e.wake = unplaced(status), host.Deletable(o.job), true, time.Millisecond
	return e, nil
}

// rest leaves a suspended session alone.
func (o *observation) rest() (e effects) {
	if o.session.Spec.Suspend {
		e.status = o.suspended(v1alpha1.ReasonSessionSuspended, suspendedMessage)
	}
	e.wakeAt(o, o.lifetimeEnds())
	return e
}
