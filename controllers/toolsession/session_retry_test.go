package toolsession_test

import (
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// Files of a session outlive a pod that can't start: the first such pod ends a session, a later one doesn't.
func TestASessionWithFilesGetsAnotherPodWhenOneCannotStart(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.SuspendedSession("s")
	for try := range 2 {
		w.Resume(s)
		job, found := w.SessionJob(s)
		if !found {
			t.Fatalf("try %d: no Job", try)
		}
		w.PodStatus(w.Pod(job), waitingFor("InvalidImageName"))
		w.Settle(s)
		now := w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonStartFailed)
		if !strings.Contains(now.Status.Message, "gets another pod") || now.Status.Job != "" || !w.HasClaim(s) || w.HasNamedJob(job.Name) {
			t.Errorf("try %d: %+v, claim: %v", try, now.Status, w.HasClaim(s))
		}
		if _, found := w.SessionJob(s); found {
			t.Errorf("try %d: another pod at once", try)
		}
		w.KeepAfter(31*time.Second, s)
	}
	r := w.StartPod(s)
	w.Settle(s)
	r.HearBegin()
	if now := w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Incarnation != r.Begun.Incarnation {
		t.Errorf("incarnation %d, the process was told %d", now.Status.Incarnation, r.Begun.Incarnation)
	}
}
