package toolsession

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// effects are what a pass does, as data. apply carries them out in the order of the fields: what has to be there before
// the status says so, the status, and only then what follows from it.
type effects struct {
	// hold puts the finalizer on the session before anything is made for it; holdLater after the status was written, and
	// before the first call is handed over, where nothing is made that would outlive the session.
	hold, holdLater bool
	// claim is the PersistentVolumeClaim to make, create the Job, credential the Job whose pod has to have its token.
	claim              *corev1.PersistentVolumeClaim
	create, credential *batchv1.Job
	// from is the observation with what this pass decided: what follows from a failed creation is made from it.
	from *observation
	// paused says that the runner is given no calls until the status is written, so that none is cancelled by that.
	paused bool
	// status is what the session's status becomes; nil leaves it.
	status *v1alpha1.ToolSessionStatus
	// messages go to runners.
	messages []message
	// adopt is a Job of a pool that becomes the session's own. Then release ends the claim on its runner.
	adopt   *batchv1.Job
	release bool
	// expire is a Job whose deadline becomes now: its pod is ended, and the Job says when that is done.
	expire *batchv1.Job
	// removeClaim and remove are what the session doesn't need any more.
	removeClaim *corev1.PersistentVolumeClaim
	remove      []*batchv1.Job
	// letGo takes the finalizer away, removeSession deletes the session.
	letGo, removeSession bool
	// forget drops what is remembered of the session, and of the runner with this key.
	forget    bool
	forgetKey string
	// wake is when to look again, 0 for not on a timer.
	wake time.Duration
}

// message is one thing to tell a runner.
type message struct {
	to    *dispatch.Session
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
