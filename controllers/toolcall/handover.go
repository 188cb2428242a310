package toolcall

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/result"
)

// takeTurn decides about a session's call, and hands it over if its turn has come.
func (r *Reconciler) takeTurn(ctx context.Context, o *observation) (effects, error) {
	reason, _ := o.session.waitsFor(o.call.Spec.Background)
	if !o.session.isInLine {
		// It is new here, or was handed over and didn't arrive: it asks again for what it had.
		return effects{joinLine: true, leaveQueue: true, wake: time.Millisecond}, nil
	}
	if reason != "" {
		if refused, err := r.refuseSession(ctx, o); err != nil || refused != nil {
			return ptr.Deref(refused, effects{}), err
		}
	}
	if left := o.created.Add(acceptWait).Sub(o.now); reason == v1alpha1.ReasonQueued && left > 0 && len(o.call.Status.Conditions) == 0 {
		// Most have had their turn by then, and nothing is written of them before their end.
		return effects{wake: left, leaveQueue: true}, nil
	}
	j, otherwise, err := r.judge(ctx, o)
	if otherwise != nil {
		otherwise.leaveLine, otherwise.leaveQueue = otherwise.ends(), true
	}
	if err != nil || otherwise != nil {
		return ptr.Deref(otherwise, effects{}), err
	}
	if o.session.isExcluded {
		// It is taken by now, and waits where it waited.
		return effects{joinLine: true, wake: time.Millisecond}, nil
	}
	o = j.observation
	asked, err := r.requestApproval(ctx, j)
	if err != nil || asked != nil {
		return ptr.Deref(asked, effects{}), err
	}
	if now := j.snapshot.Session.Current; now != nil && now.Spec.Suspend {
		// Its next change has the call looked at again.
		return effects{status: o.suspended(now.Name), leaveQueue: true}, nil
	}
	if reason, message := o.session.waitsFor(o.call.Spec.Background); reason != "" {
		return effects{status: o.pending(reason, message), leaveQueue: true}, nil
	}
	stale, err := r.mayHaveEnded(ctx, o)
	if err != nil || stale {
		return effects{wake: host.RetryPause}, err
	}
	// Nobody behind it is handed over meanwhile.
	if over, err := r.overBudget(ctx, o, queue.Calls); err != nil || over != nil {
		return ptr.Deref(over, effects{}), err
	}
	return r.handOver(ctx, o, j)
}

// refuseSession ends a call that its session doesn't take, whoever else waits; nil for any other. It has no place in the line from
// now on, also where the write of its end fails.
func (r *Reconciler) refuseSession(ctx context.Context, o *observation) (*effects, error) {
	s := &decide.Snapshot{Call: o.call}
	if err := r.snapshots.Owner(ctx, s, o.session.Session); err != nil {
		return nil, err
	}
	if err := r.snapshots.Requester(ctx, s); err != nil {
		return nil, err
	}
	var refusal *decide.Refusal
	if !errors.As(decide.CheckSession(s), &refusal) {
		return nil, nil
	}
	o, err := r.withItsAction(ctx, o)
	if err != nil {
		return nil, err
	}
	return &effects{status: o.refuse(refusal), leaveLine: true}, nil
}

// mayHaveEnded says that the cache shows a call as it was before the session's pod took calls, and that the API server shows
// that it has ended: the pod before this one ran it, or another session of the name did. The process of this pod can't know
// the call.
func (r *observer) mayHaveEnded(ctx context.Context, o *observation) (bool, error) {
	session := o.session.Session
	isFirst := session.Status.Incarnation <= 1 && o.call.Spec.SessionRef.UID != ""
	if isFirst || apicache.Revision(o.call.ResourceVersion) > apicache.Revision(session.ResourceVersion) {
		return false, nil
	}
	now, err := r.Objects.LiveCall(ctx, o.name)
	return now == nil || now.UID != o.call.UID || now.Status.Phase.Terminal(), err
}

// handOver gives a call to its session's process. That is recorded, in the session, so that nothing is written for the call.
func (r *Reconciler) handOver(ctx context.Context, o *observation, j *judged) (effects, error) {
	v := o.session
	sealed, err := jobspec.Seal(r.Identity, o.decision.HandedOver(o.now), sessionSealContext(o.call, v.Session)...)
	if err != nil {
		return effects{}, err
	}
	assignment, err := r.assignment(ctx, o.decision, j.whole)
	if err != nil {
		return o.cannotAssign(ctx, err)
	}
	assignment.Decision, assignment.Background = sealed, o.call.Spec.Background
	return effects{messages: []message{{to: v.runner(), assign: assignment, session: v.Session.UID}}, wake: acceptWait}, nil
}

// watchInSession looks after a call that its session's process may have started.
func (r *Reconciler) watchInSession(ctx context.Context, o *observation) (effects, error) {
	e, err := r.lookAtSession(ctx, o)
	// Also where an operator before this one handed it over: it doesn't stand in line.
	e.handedOver = !o.session.orphaned
	return e, err
}

func (r *Reconciler) lookAtSession(ctx context.Context, o *observation) (effects, error) {
	o, err := r.withItsAction(ctx, o)
	if err != nil {
		return effects{}, err
	}
	v := o.session
	switch {
	case v.orphaned:
		why := fmt.Sprintf("ToolSession %q was deleted or replaced after the call may have been sent to it; the command may have run", v.name.Name)
		return effects{status: o.fail(v1alpha1.ReasonPodLost, why)}, nil
	case v.held != nil && v.held.State == dispatch.Known:
		return r.watchKnown(ctx, o)
	case v.runner() == nil:
		return r.watchLostSession(ctx, o)
	case v.held == nil:
		// Its connection has changed since it was looked for.
		return effects{wake: apicache.Lag}, nil
	}
	e := o.saysRunning()
	e.watchOutput = true
	if o.call.Spec.Cancel {
		// The process knows the call: its result follows.
		e.messages = append(e.messages, message{to: v.runner(), stop: string(o.call.UID)})
	}
	return e, nil
}

// withItsAction is the observation of a call whose status doesn't say yet what it does: nothing was written when it was handed
// over.
func (r *observer) withItsAction(ctx context.Context, o *observation) (*observation, error) {
	if o.call.Status.Action != nil {
		return o, nil
	}
	whole, err := r.Objects.Whole(ctx, o.call)
	if apierrors.IsNotFound(err) {
		return o, nil
	}
	if err != nil {
		return nil, err
	}
	return o.withAction(whole), nil
}

// saysRunning has the status say that the call runs, if it doesn't end soon.
func (o *observation) saysRunning() effects {
	if o.call.Status.Phase == v1alpha1.PhaseRunning {
		return effects{}
	}
	if d := o.decision; d != nil {
		if left := d.Assigned().Add(acceptWait).Sub(o.now); left > 0 {
			return effects{wake: left}
		}
	}
	return effects{status: o.runningInSession()}
}

// watchLostSession looks after a call whose session's process isn't connected. While that may live, only it can say how the
// call ends.
func (r *Reconciler) watchLostSession(ctx context.Context, o *observation) (effects, error) {
	lost, err := toolsession.Gone(ctx, r.Objects, o.session.Session)
	switch {
	case err != nil:
		return effects{}, err
	case lost != nil && lost.OutOfMemory:
		return effects{status: killedForMemory(o)}, nil
	case lost != nil && o.call.Spec.Cancel:
		message := "the call was cancelled, and " + lost.Why + "; how far the command came is not known"
		return effects{status: o.end(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, message)}, nil
	case lost != nil:
		return effects{status: o.fail(v1alpha1.ReasonPodLost, lost.Why+" and left no result; the command may have run")}, nil
	}
	e := effects{}
	if o.session.Host.HasSaidHello {
		e = o.saysRunning()
	}
	e.wakeIn(host.RetryPause)
	return e, nil
}

// watchKnown looks after a call of which the process says that its result was acknowledged. The cache may be behind.
func (r *Reconciler) watchKnown(ctx context.Context, o *observation) (effects, error) {
	now, err := r.Objects.LiveCall(ctx, o.name)
	if err != nil {
		return effects{}, err
	}
	if now == nil || now.UID != o.call.UID || now.Status.Phase.Terminal() {
		return effects{wake: host.RetryPause}, nil
	}
	return effects{status: o.fail(v1alpha1.ReasonPodLost, "the call's result was recorded before and is lost, as after etcd was restored from a backup; the command has run")}, nil
}

// goesOn says that a call came to the session's process after the session's suspension: it hasn't started, and goes to the next one.
func (v *inSession) goesOn(outcome *result.Outcome) bool {
	return v != nil && outcome.Reason == result.SessionEnded && !outcome.Started && v.Session.TakesCalls() && v.isSuspended()
}

// waitsAgain has a session's call wait that was handed over.
func (o *observation) waitsAgain() *v1alpha1.ToolCallStatus {
	next, v := *o, *o.session
	v.handedOver, next.session = false, &v
	return next.pending(v1alpha1.ReasonSessionSuspended, "the session was suspended before the command started: the call waits until it is resumed")
}

// isSuspended says that the call's session was told to give up its pod, and goes on.
func (v *inSession) isSuspended() bool {
	session := v.Session
	return session.Spec.Suspend || session.Status.Phase == v1alpha1.SessionSuspended
}

// letGo answers the process that still has a call which has ended.
func (v *inSession) letGo(call *v1alpha1.ToolCall, e *effects) {
	if v.held == nil {
		return
	}
	if v.held.HasEnded() {
		e.messages = append(e.messages, message{to: v.runner(), ack: string(call.UID)})
		return
	}
	// Somebody else ended it.
	e.messages = append(e.messages, message{to: v.runner(), stop: string(call.UID)})
}

// notBegun says what a call waits for whose session has no pod yet.
func (o *observation) notBegun() *effects {
	reason, message := o.session.waitsFor(o.call.Spec.Background)
	if reason == "" {
		// It takes calls, and what it began with can't be read.
		return &effects{status: o.fail(v1alpha1.ReasonInvalidEnvironment, "the operator can't read what the session began with, for example because the Secret of its identity was replaced: create another session, and the call again")}
	}
	return &effects{status: o.pending(reason, message)}
}
