package toolcall

import (
	"context"
	"fmt"

	"toolcall.dev/operator/internal/jobspec"
)

// Stage is where a call is. It is worked out anew in every pass, from what was observed, and stored nowhere. The page on concepts says
// of each when a call is there, what its handler does, and where the call goes from there.
type Stage string

// Stages of a call. The first that applies counts.
const (
	Gone             Stage = "Gone"
	Deleting         Stage = "Deleting"
	Finished         Stage = "Finished"
	Reported         Stage = "Reported"
	Cancelling       Stage = "Cancelling"
	Bound            Stage = "Bound"
	Running          Stage = "Running"
	Starting         Stage = "Starting"
	Placed           Stage = "Placed"
	HandedOver       Stage = "HandedOver"
	AwaitingApproval Stage = "AwaitingApproval"
	Waiting          Stage = "Waiting"
	Eligible         Stage = "Eligible"
	Queued           Stage = "Queued"
	New              Stage = "New"
)

// stageOf works out a call's stage. The first that applies counts.
func stageOf(o *observation) Stage {
	switch {
	case o.call == nil:
		return Gone
	case o.call.DeletionTimestamp != nil:
		return Deleting
	case o.call.Status.Phase.Terminal():
		return Finished
	case o.isHandedOver() && o.result != nil:
		return Reported
	case (o.call.Spec.Cancel || o.call.IsEdited()) && (!o.isHandedOver() || o.isUnassigned()):
		return Cancelling
	case o.isUnassigned():
		return Bound
	case o.isBound():
		return Running
	case o.isHandedOver():
		return HandedOver
	case o.job == nil && o.call.AwaitsApproval():
		return AwaitingApproval
	case o.session != nil && o.session.isToldBy(o.call):
		return Waiting
	case o.session != nil:
		return Eligible
	case o.job != nil && o.runner != nil && !jobspec.IsSuspended(o.job):
		return Starting
	case o.job != nil:
		return Placed
	case o.queued:
		return Queued
	default:
		return New
	}
}

// runStage has the handler of the call's stage decide what to do. It reads, and returns effects; it writes nothing, tells nobody, and
// queues nothing. What it may do is to take a place that it needs to know of: among a requester's pending calls, in its budgets, in an
// environment, on a waiting runner, or among what is being stored. Taking a place again changes nothing. An error means that it couldn't
// read what it needs: then nothing is done, and the pass is tried again.
func (r *Reconciler) runStage(ctx context.Context, o *observation) (effects, error) {
	stage := stageOf(o)
	switch stage {
	case Gone:
		return effects{forget: true}, nil
	case Deleting:
		return r.dismiss(ctx, o)
	case Finished:
		return r.retire(ctx, o)
	case Reported:
		return r.finish(ctx, o)
	case Cancelling:
		return r.cancel(ctx, o)
	case Bound:
		return r.assign(ctx, o)
	case Running:
		return r.watchRun(ctx, o)
	case Starting:
		return r.bind(ctx, o)
	case Placed:
		return r.watchStart(ctx, o)
	case HandedOver:
		return r.watchInSession(ctx, o)
	case AwaitingApproval:
		return r.awaitApproval(ctx, o)
	case Eligible:
		return r.takeTurn(ctx, o)
	case New:
		return r.place(ctx, o)
	case Waiting:
		// It holds nothing of its budgets.
		return effects{leaveQueue: true}, nil
	case Queued:
		// It is decided about when its place is free, and what it may do then counts.
		return effects{}, nil
	}
	return effects{}, fmt.Errorf("no handler for the stage %s", stage)
}
