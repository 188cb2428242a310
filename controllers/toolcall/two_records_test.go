package toolcall_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

// claimAgain has a runner claimed that an object records already, as by a new leader whose cache doesn't show that record yet. What
// the first was to begin was lost.
func claimAgain(w *fixture.World, r *fixture.Runner, job *batchv1.Job) (winner *v1alpha1.ToolCall) {
	w.T.Helper()
	w.Restart()
	r.Connect(w, "")
	w.Hosts.Offer(string(job.UID), job.Annotations[jobspec.AnnotationTemplate])
	winner = w.Call("winner")
	w.Reconcile(winner)
	if m := r.Receive(); m.Assign == nil || m.Assign.CallName != winner.Name {
		w.T.Fatalf("got %+v", m)
	}
	return winner
}

// succeeds has the runner report the result of its call.
func succeeds(w *fixture.World, r *fixture.Runner, call *v1alpha1.ToolCall) {
	w.T.Helper()
	r.Report(w, call.UID, result.Outcome{Reason: result.Completed, Started: true, ExitCode: ptr.To(int32(0))})
	w.Reconcile(call)
	if status := w.Get(call).Status; status.Phase != v1alpha1.PhaseSucceeded {
		w.T.Errorf("the call that runs in the pod is %s: %s", status.Phase, status.Message)
	}
}

// Of two calls that record one pod, the one that doesn't run there ends, and leaves the other and its Job alone.
func TestACallThatLostItsPodToAnotherOneLeavesItAlone(t *testing.T) {
	w := fixture.NewWorld(t)
	r := fixture.Only(w.WarmUp(w.Environment("env", fixture.Warm(1))))
	loser := w.Call("loser")
	w.LoseTheAnswerToTheBinding(loser)
	job := w.JobNamed(w.Get(loser).Status.Job)
	winner := claimAgain(w, r, job)
	for range 3 {
		w.Reconcile(loser)
	}
	if status := w.Get(loser).Status; status.Reason != v1alpha1.ReasonPodLost {
		t.Errorf("the other is %s, %s", status.Phase, status.Reason)
	}
	if metav1.IsControlledBy(w.JobNamed(job.Name), loser) {
		t.Error("it adopts the Job")
	}
	succeeds(w, r, winner)
}

func TestASessionThatLostItsPodToACallLeavesItAlone(t *testing.T) {
	w := fixture.NewWorld(t)
	r := fixture.Only(w.WarmUp(w.Environment("env", fixture.Warm(1), fixture.AsDefault)))
	loser := w.Session("loser")
	w.Keep(loser)
	r.Receive()
	winner := claimAgain(w, r, w.JobNamed(w.GetSession(loser).Status.Job))
	w.DeleteSession(loser)
	w.Keep(loser)
	succeeds(w, r, winner)
}
