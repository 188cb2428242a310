package toolsession

import (
	"context"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// suspend suspends a session because somebody wants it.
func (r *Reconciler) suspend(_ context.Context, o *observation) (effects, error) {
	return o.suspendNow(v1alpha1.ReasonSessionSuspended, suspendedMessage), nil
}

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
		left, err := r.hasCallsOf(ctx, o)
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
	e.status, e.remove, e.release, e.wake = o.unplaced(status), o.ownJob(), true, time.Millisecond
	return e, nil
}

// resume waits until the session is to go on: spec.suspend is false or, after idleness, a call waits.
func (r *Reconciler) resume(ctx context.Context, o *observation) (effects, error) {
	switch {
	case o.session.Spec.Suspend:
		e := effects{status: o.suspended(v1alpha1.ReasonSessionSuspended, suspendedMessage)}
		e.wakeAt(o, o.lifetimeEnds())
		return e, nil
	case o.session.Status.Reason == v1alpha1.ReasonIdleTimeout && o.calls.waiting == 0:
		e := effects{}
		e.wakeAt(o, o.lifetimeEnds())
		return e, nil
	default:
		return r.place(ctx, o)
	}
}
