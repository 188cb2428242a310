package toolcall

import (
	"context"
	"fmt"

	"toolcall.dev/operator/internal/jobspec"
)

// Stage is where a call is. It is worked out anew in every pass, from what was observed, and stored nowhere.
type Stage string

// Stages of a call.
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
	case o.session != nil && o.saysWhatItWaitsFor():
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

// handle decides what to do for a call in one stage. It reads, and returns effects; it writes nothing, tells nobody, and queues
// nothing. What it may do is to take a place that it needs to know of: among a requester's pending calls, in its budgets, in an
// environment, on a waiting runner, or among what is being stored. Taking a place again changes nothing. An error means that it couldn't
// read what it needs: then nothing is done, and the pass is tried again.
type handle func(*Reconciler, context.Context, *observation) (effects, error)

// Row is one line of the table of stages.
type Row struct {
	Stage Stage
	// When says what was observed, Does what the handler does, Next where the call goes from here: by what the handler
	// does, or by what happens meanwhile. Any call may be deleted.
	When, Does string
	Next       []Stage

	handle handle
}

// Table maps each stage to its handler. A test compares it with the documentation.
func Table() []Row {
	return []Row{
		{
			Gone, "there is no ToolCall of the name",
			"turns the runners of calls that had it away, and forgets them", nil,
			(*Reconciler).leave,
		},
		{
			Deleting, "the ToolCall is being deleted",
			"turns its runner away, and ends a call that a finalizer holds; Kubernetes deletes the Job, and the kubelet stops the command", nil,
			(*Reconciler).dismiss,
		},
		{
			Finished, "the phase is terminal",
			"acknowledges a late result, turns other runners away, deletes what would start again, and has the call deleted when its time is up", nil,
			(*Reconciler).retire,
		},
		{
			Reported, "a runner is recorded, in the call or its session, and its result has arrived",
			"writes the result, then acknowledges it; refuses one that isn't valid", []Stage{Finished, Running, Waiting, Eligible, Cancelling},
			(*Reconciler).finish,
		},
		{
			Cancelling, "spec.cancel is true, or the spec was edited, and the command was not handed over",
			"ends the call as Cancelled (an edited one as Denied), then turns its runner away and deletes its Job", []Stage{Finished, Running, HandedOver},
			(*Reconciler).cancel,
		},
		{
			Bound, "a runner is recorded, connected, and has no call",
			"hands the command over", []Stage{Running, Reported, Cancelling, Finished},
			(*Reconciler).assign,
		},
		{
			Running, "a runner is recorded, and may have started the command",
			"passes on a cancel; where the runner isn't connected, reads what its pod left behind once that has ended", []Stage{Reported, Bound, Cancelling, Finished},
			(*Reconciler).watchRun,
		},
		{
			Starting, "the call's Job is there, and its runner is connected",
			"records the runner and the decision in the status, then hands the command over", []Stage{Running, Bound, Reported, Placed, New, Cancelling, Finished},
			(*Reconciler).bind,
		},
		{
			Placed, "the call's Job is there, and its runner isn't connected",
			"says that the call was accepted or that its environment is suspended; ends it when its pod can't start or the start timeout is over; deletes a Job whose deadline passed while nobody could hear its runner", []Stage{Starting, New, Cancelling, Finished},
			(*Reconciler).watchStart,
		},
		{
			HandedOver, "a session's call was handed over to the process that the session records, or may have been by an operator before this one",
			"says that the call runs when it hasn't ended after a second; passes on a cancel; ends the call when the process is proven to be gone", []Stage{Reported, Eligible, Waiting, Cancelling, Finished},
			(*Reconciler).watchInSession,
		},
		{
			AwaitingApproval, "the call waits for people to decide about it, and has no Job",
			"counts the decisions; ends the call when it is denied or the time is up; once it is approved, does what the stage New or Eligible does, and creates a Job only after the status says who approved", []Stage{New, Queued, Bound, Running, Eligible, Waiting, HandedOver, Reported, Cancelling, Finished},
			(*Reconciler).awaitApproval,
		},
		{
			Waiting, "a session's call waits for its turn, or for the session's pod, and its status says so",
			"does nothing", []Stage{Eligible, HandedOver, Cancelling},
			(*Reconciler).wait,
		},
		{
			Eligible, "none of these, and the call names a session",
			"decides about the call; then asks people to decide where the policy wants that, hands it over if its turn has come, or says what it waits for", []Stage{AwaitingApproval, HandedOver, Waiting, Reported, Cancelling, Finished},
			(*Reconciler).takeTurn,
		},
		{
			Queued, "the call waits for a place in its environment",
			"does nothing; decides about the call when the place is free", []Stage{New, Cancelling},
			(*Reconciler).wait,
		},
		{
			New, "none of these, and the call names no session",
			"decides about the call; then asks people to decide where the policy wants that, claims a waiting pod and records its runner, or creates a Job", []Stage{AwaitingApproval, Queued, Placed, Starting, Bound, Running, Reported, Cancelling, Finished},
			(*Reconciler).place,
		},
	}
}

// runStage runs the handler of the call's stage.
func (r *Reconciler) runStage(ctx context.Context, o *observation) (effects, error) {
	stage := stageOf(o)
	for _, row := range Table() {
		if row.Stage == stage {
			return row.handle(r, ctx, o)
		}
	}
	return effects{}, fmt.Errorf("no handler for the stage %s", stage)
}
