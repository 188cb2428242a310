package toolsession

import (
	"context"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// Stage is where a session is. It is worked out anew in every pass, from what was observed, and stored nowhere.
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

// handle decides what to do for a session in one stage. It reads, and returns effects; it writes nothing, except for three things in
// memory: idle pauses the runner, so that no call is handed over between the decision that there is none and the write of that; place
// takes a place in the session's budgets, and keeps others out of the environment until the session's place is written. An error means that it couldn't read what it needs: then
// nothing is done, and the pass is tried again.
type handle func(*Reconciler, context.Context, *observation) (effects, error)

// Row is one line of the table of stages.
type Row struct {
	Stage Stage
	// When says what was observed, Does what the handler does, Next where the session goes from here.
	When, Does string
	Next       []Stage

	handle handle
}

// Table maps each stage to its handler. A test compares it with the documentation.
func Table() []Row {
	return []Row{
		{
			Ended, "the phase is Ended",
			"tells the runner to end; when the session's calls have ended, deletes Job and claim, lets the name go, and deletes the session when its time is up", nil,
			(*Reconciler).retire,
		},
		{
			Ending, "spec.end is true, the session is being deleted, or maxLifetimeSeconds have passed",
			"writes the end, then tells the runner", []Stage{Ended},
			(*Reconciler).end,
		},
		{
			Stopping, "the phase is Suspended, and there is a runner or a Job",
			"tells the runner to end; when the session's calls that it may have got have ended, deletes the Job and records that nobody has the session", []Stage{Suspended, Ending, Ended},
			(*Reconciler).stop,
		},
		{
			Suspended, "the phase is Suspended, nobody has the session, and spec.suspend is true or, after idleness, no call waits",
			"says which of these it is", []Stage{New, Ending, Ended},
			(*Reconciler).rest,
		},
		{
			Suspending, "spec.suspend is true",
			"writes the suspension, then tells the runner", []Stage{Stopping, Suspended},
			(*Reconciler).suspend,
		},
		{
			Ready, "a runner is recorded and connected",
			"sends Begin to a runner that waits; says that the session is ready; suspends or ends it when it is idle or has had all its calls", []Stage{Unheard, Suspending, Stopping, Ending, Ended},
			(*Reconciler).serve,
		},
		{
			Unheard, "a runner is recorded and isn't connected",
			"says so; when the runner is proven to be gone, ends the session, or lets one with a claim take another pod once its calls have ended", []Stage{Ready, New, Suspending, Ending, Ended},
			(*Reconciler).watchLost,
		},
		{
			Starting, "the session's Job is there, and its runner is connected",
			"records the runner and what the session begins with in the status, then sends Begin", []Stage{Ready, Unheard, Placed, Ending, Ended},
			(*Reconciler).bind,
		},
		{
			Placed, "the session's Job is there, and its runner isn't connected",
			"ends the session when its pod can't start or the start timeout is over", []Stage{Starting, New, Suspending, Ending, Ended},
			(*Reconciler).watchStart,
		},
		{
			New, "none of these",
			"decides what the session begins with; then claims a waiting pod and records its runner, or creates a Job", []Stage{Ready, Starting, Placed, Suspending, Ending, Ended},
			(*Reconciler).place,
		},
	}
}

// runStage runs the handler of the session's stage.
func (r *Reconciler) runStage(ctx context.Context, o *observation) (effects, error) {
	stage := stageOf(o)
	for _, row := range Table() {
		if row.Stage == stage {
			e, err := row.handle(r, ctx, o)
			if o.leftover != nil {
				e.remove = append(e.remove, o.leftover)
			}
			if stage != Ended {
				e.wakeAt(o, o.lifetimeEnds())
			}
			return e, err
		}
	}
	return effects{}, nil
}
