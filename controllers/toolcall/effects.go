package toolcall

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/metrics"
)

// effects are what a pass does, as data. apply carries them out in the order of the fields: what has to be there
// before the status says so, the status, and only then what follows from it.
type effects struct {
	// joinLine has a session's call wait for its turn; leaveLine takes one out that the session doesn't take, also where the write of
	// its end fails.
	joinLine, leaveLine bool
	// create is the Job to make; then credential is the Job whose pod has to have its token.
	create, credential *batchv1.Job
	// decided is the observation with what this pass decided: what follows from a failed creation is made from it.
	decided *observation
	// status is what the call's status becomes; nil leaves it.
	status *v1alpha1.ToolCallStatus
	// adopt is a Job that becomes the call's own, with the time that the call has. It comes before the runner is let go; an API server
	// that doesn't take it doesn't keep the runner from what it has to be told.
	adopt *batchv1.Job
	// forget drops what is remembered of a call in flight.
	forget bool
	// holds is the environment that the call takes a place in, also for an operator that has just started; handedOver notes in the line
	// of its session that the call doesn't wait. Either counts in the call's budgets.
	holds      string
	handedOver bool
	// watchOutput has what the call writes stored from when it exceeds the status.
	watchOutput bool
	// hello and problem tell of the environment's nodes: what the call's runner said, or why its pod can't start.
	hello   *wire.Hello
	problem *host.Problem
	// leaveQueue ends the call's place in its environment's queue, and among the calls of its budgets.
	leaveQueue bool
	// leaveEnvironment ends only the place in the environment's queue: who waits for a budget must not keep a place from those that
	// the budget let in.
	leaveEnvironment bool
	// messages go to runners.
	messages []message
	// release ends the call's claim on a waiting runner.
	release bool
	// reported is what became of a runner's result, for the metric.
	reported metrics.ReportOutcome
	// forgetResult drops the copy of a result whose runner has gone.
	forgetResult bool
	// keep has a call that has ended deleted when its time is up, and its output looked after until all is stored.
	keep bool
	// remove are Jobs to delete, with their pods.
	remove []*batchv1.Job
	// wake is when to look again, 0 for not on a timer.
	wake time.Duration
}

// makesRoom says that others of the session may have become the first in its line, or have got room.
func (e *effects) makesRoom() bool {
	return e.ends() || slices.ContainsFunc(e.messages, func(m message) bool { return m.session != "" || m.ack != "" })
}

// ends says that the status is that of a call which has ended.
func (e *effects) ends() bool { return e.status != nil && e.status.Phase.Terminal() }

// message is one thing to tell a runner.
type message struct {
	to     *dispatch.Runner
	assign *wire.Assignment
	// session is the UID of the session that the assignment is for; empty for a runner that takes one call.
	session types.UID
	// ack, record and stop hold the call's UID. record says that the result is recorded, and the runner is still
	// needed: it is acknowledged when its output is stored.
	ack, record, stop string
	refuse            string
}

// wakeIn has the call looked at again after d at the latest.
func (e *effects) wakeIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if e.wake == 0 || d < e.wake {
		e.wake = d
	}
}
