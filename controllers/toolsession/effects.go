package toolsession

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
)

// effects are what a pass does, as data. apply carries them out in the order of the fields: what has to be there before
// the status says so, the status, and only then what follows from it.
type effects struct {
	// paused says that the runner is given no calls until the status is written, so that none is cancelled by that.
	paused bool
	// hold puts the finalizer on the session before anything is made for it.
	hold bool
	// claim is the PersistentVolumeClaim to make, create the Job, credential the Job whose pod has to have its token.
	claim              *corev1.PersistentVolumeClaim
	create, credential *batchv1.Job
	// from is the observation with what this pass decided: what follows from a failed creation is made from it.
	from *observation
	// status is what the session's status becomes; nil leaves it.
	status *v1alpha1.ToolSessionStatus
	// letIn lets other sessions into the environment: the status says whether this one is in. Nil where nobody waits for that.
	letIn func()
	// messages go to runners.
	messages []message
	// forgetKey drops what is remembered of the runner with this key.
	forgetKey string
	// hello is what the session's first runner said, and problem why its first pod can't start: both count for the environment.
	hello   *wire.Hello
	problem *host.Problem
	// holdLater puts the finalizer on the session before the first call is handed over, where nothing is made that would
	// outlive the session.
	holdLater bool
	// adopt is a Job of a pool that becomes the session's own. The claim on its runner is released, then.
	adopt *batchv1.Job
	// expire is a Job whose deadline becomes now: its pod is ended, and the Job says when that is done.
	expire *batchv1.Job
	// removeClaim and remove are what the session doesn't need any more.
	removeClaim *corev1.PersistentVolumeClaim
	remove      []*batchv1.Job
	// removeSession deletes the session, release ends its claim on a waiting runner, letGo takes the finalizer away.
	removeSession, release, letGo bool
	// wake is when to look again, 0 for not on a timer.
	wake time.Duration
}

// message is one thing to tell a runner.
type message struct {
	to    *dispatch.Runner
	begin *wire.Begin
	// end is why the session ends for that runner.
	end    string
	refuse string
}

// deliver tells the runner. One that can't be reached dials in again.
func (m message) deliver() {
	switch {
	case m.begin != nil:
		_ = m.to.Begin(m.begin)
	case m.end != "":
		_ = m.to.End(m.end)
	default:
		m.to.Refuse(m.refuse)
	}
}

// wakeIn has the session looked at again after d at the latest.
func (e *effects) wakeIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if e.wake == 0 || d < e.wake {
		e.wake = d
	}
}

// wakeAt has the session looked at again at a time at the latest.
func (e *effects) wakeAt(o *observation, at time.Time) { e.wakeIn(at.Sub(o.now)) }
