package controllers_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// suspendedSession is one with files, and without a pod.
func (w *world) suspendedSession(name string) *v1alpha1.ToolSession {
	w.t.Helper()
	s, r := w.readySession(name, withWorkspace)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.settle(s)
	r.hearEnd()
	r.exit(w, corev1.PodSucceeded)
	w.settle(s)
	w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	return s
}

func (w *world) resume(s *v1alpha1.ToolSession) {
	w.t.Helper()
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	w.settle(s)
}

// Files of a session outlive a pod that can't start: the first such pod ends a session, a later one doesn't.
func TestASessionWithFilesGetsAnotherPodWhenOneCannotStart(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.suspendedSession("s")
	for try := range 2 {
		w.resume(s)
		job, found := w.sessionJob(s)
		if !found {
			t.Fatalf("try %d: no Job", try)
		}
		w.podStatus(w.pod(job), waitingFor("InvalidImageName"))
		w.settle(s)
		now := w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonStartFailed)
		if !strings.Contains(now.Status.Message, "gets another pod") || now.Status.Job != "" || !w.hasClaim(s) || w.hasNamedJob(job.Name) {
			t.Errorf("try %d: %+v, claim: %v", try, now.Status, w.hasClaim(s))
		}
		if _, found := w.sessionJob(s); found {
			t.Errorf("try %d: another pod at once", try)
		}
		w.keepAfter(31*time.Second, s)
	}
	r := w.startPod(s)
	w.settle(s)
	r.hearBegin()
	if now := w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Incarnation != r.begun.Incarnation {
		t.Errorf("incarnation %d, the process was told %d", now.Status.Incarnation, r.begun.Incarnation)
	}
}
