package toolsession

import (
	"context"
	"fmt"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// Stage is where a session is. It is worked out anew in every pass, from what was observed, and stored nowhere. The page on sessions
// says of each when a session is there, what its handler does, and where the session goes from there.
type Stage string

// Stages of a session.
const (
	Ended      Stage = "Ended"
	Ending     Stage = "Ending"
	Stopping   Stage = "Stopping"
	Suspended  Stage = "Suspended"
	Suspending Stage = "Suspending"
	Ready      Stage = "Ready"
	Unheard    Stage = "Unheard"
	Starting   Stage = "Starting"
	Placed     Stage = "Placed"
	New        Stage = "New"
)

// stageOf works out a session's stage. The first that applies counts.
func stageOf(o *observation) Stage {
	s := &o.session.Status
	switch {
	case s.Phase == v1alpha1.SessionEnded:
		return Ended
	case o.mustEnd():
		return Ending
	case s.Phase == v1alpha1.SessionSuspended && (s.Job != "" || o.staysSuspended() && o.job != nil):
		return Stopping
	case s.Phase == v1alpha1.SessionSuspended && o.staysSuspended():
		return Suspended
	case o.session.Spec.Suspend && o.hasWorkspace():
		return Suspending
	case o.isBound() && o.runner != nil:
		return Ready
	case o.isBound():
		return Unheard
	case o.job != nil && o.runner != nil && !jobspec.IsSuspended(o.job):
		return Starting
	case o.job != nil:
		return Placed
	default:
		return New
	}
}

// mustEnd says that somebody wants the session to end, or that its time is up.
func (o *observation) mustEnd() bool {
	return o.session.Spec.End || o.session.DeletionTimestamp != nil || !o.now.Before(o.lifetimeEnds())
}

// staysSuspended says that a suspended session gets no pod now. One that was suspended for idleness gets one for the next
// call.
func (o *observation) staysSuspended() bool {
	return o.session.Spec.Suspend || o.session.Status.Reason == v1alpha1.ReasonIdleTimeout && o.calls.waiting == 0
}

// runStage has the handler of the session's stage decide what to do. It reads, and returns effects; it writes nothing, except for three
// things in memory: idle pauses the runner, so that no call is handed over between the decision that there is none and the write of that;
// place takes a place in the session's budgets, and keeps others out of the environment until the session's place is written. An error
// means that it couldn't read what it needs: then nothing is done, and the pass is tried again.
func (r *Reconciler) runStage(ctx context.Context, o *observation) (effects, error) {
	stage := stageOf(o)
	e, err := r.handle(ctx, o, stage)
	if o.leftover != nil {
		e.remove = append(e.remove, o.leftover)
	}
	if stage != Ended {
		e.wakeAt(o, o.lifetimeEnds())
	}
	return e, err
}

func (r *Reconciler) handle(ctx context.Context, o *observation, stage Stage) (effects, error) {
	switch stage {
	case Ended:
		return r.retire(ctx, o)
	case Ending:
		return o.end(), nil
	case Stopping:
		return r.stop(ctx, o)
	case Suspended:
		return o.rest(), nil
	case Suspending:
		return o.suspendNow(v1alpha1.ReasonSessionSuspended, suspendedMessage), nil
	case Ready:
		return r.serve(ctx, o)
	case Unheard:
		return r.watchLost(ctx, o)
	case Starting:
		return r.bind(ctx, o)
	case Placed:
		return r.watchStart(ctx, o)
	case New:
		return r.place(ctx, o)
	}
	return effects{}, fmt.Errorf("no handler for the stage %s", stage)
}
