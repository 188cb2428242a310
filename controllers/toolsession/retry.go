package toolsession

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// nextTry is how long after a pod that couldn't start a session with files gets another one.
const nextTry = 30 * time.Second

// noPod is what follows when the session's pod can't be started. A session that has had a pod keeps its claim, with the files
// of its calls, and gets another pod after a while; any other ends.
func (o *observation) noPod(reason, message string, remove []*batchv1.Job) effects {
	if !o.hasFiles() {
		return effects{hold: true, status: o.failed(reason, message), remove: remove}
	}
	status := o.unplaced(o.pending(v1alpha1.ReasonStartFailed, reason+": "+message+"; the session keeps its workspace and gets another pod"))
	// The name of a Job isn't used again.
	status.Incarnation++
	return effects{status: status, remove: remove, release: true, wake: nextTry}
}

// hasFiles says that the session's claim may hold files of its calls.
func (o *observation) hasFiles() bool { return o.hasWorkspace() && o.session.Status.Runner != nil }

// isTriedAgain says that the session's last pod couldn't be started.
func (o *observation) isTriedAgain() bool {
	return o.session.Status.Phase == v1alpha1.SessionPending && o.session.Status.Reason == v1alpha1.ReasonStartFailed
}
