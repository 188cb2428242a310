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
	if !hasFiles(o.session) {
		return effects{hold: true, status: o.failed(reason, message), remove: remove}
	}
	status := unplaced(o.pending(v1alpha1.ReasonStartFailed, reason+": "+message+"; the session keeps its workspace and gets another pod"))
	// The name of a Job isn't used again.
	status.Incarnation++
	return effects{status: status, remove: remove, release: true, wake: nextTry}
}

// hasFiles says that the session's claim may hold files of its calls.
func hasFiles(session *v1alpha1.ToolSession) bool {
	return session.Spec.Workspace != nil && session.Status.Runner != nil
}

// isTriedAgain says that the session's last pod couldn't be started.
func isTriedAgain(session *v1alpha1.ToolSession) bool {
	return session.Status.Phase == v1alpha1.SessionPending && session.Status.Reason == v1alpha1.ReasonStartFailed
}
