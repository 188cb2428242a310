package toolcall_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func shortLimit(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(10)) }

func TestAResultSurvivesAnOutageThatIsLongerThanEveryDeadline(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c", shortLimit)
	w.Reconcile(call)
	r := w.Start(call)
	w.Disconnect(r)
	w.Outage()

	// The runner takes a few seconds to find the new operator.
	if wake := w.Reconcile(call).RequeueAfter; wake <= 5*time.Second {
		t.Errorf("the new operator looks again after %s", wake)
	}
	w.StillRunning(call, "before the runner could dial in")
	w.Clock.Set(w.Clock.Now().Add(5 * time.Second))
	w.Reconcile(call)
	w.StillRunning(call, "while the runner dials in")
	r.Connect(w, string(call.UID))
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonCompleted || s.Stdout != "hi\n" {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	if m := r.Receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement", m)
	}
}

// The hello is there and the result's frame isn't: it may be large, and the network slow.
func TestAConnectedRunnerIsWaitedForHoweverLongItsResultTakes(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c", shortLimit)
	w.Reconcile(call)
	r := w.Start(call)
	w.Disconnect(r)
	w.Outage()
	r.Connect(w, string(call.UID))
	for range 3 {
		w.Clock.Set(w.Clock.Now().Add(fixture.LongerThanEveryDeadline))
		w.Reconcile(call)
		w.StillRunning(call, "hours after the hello")
	}
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

func TestTheWallClockNeverEndsACallWhoseRunnerIsConnected(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c", shortLimit)
	w.Reconcile(call)
	r := w.Start(call)
	for range 3 {
		w.Clock.Set(w.Clock.Now().Add(10 * 24 * time.Hour))
		w.Reconcile(call)
		w.StillRunning(call, "days later")
		if w.Job(call).DeletionTimestamp != nil {
			t.Fatal("the Job of a connected runner is deleted")
		}
	}
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if m := r.Receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement and nothing before it", m)
	}
}

// The call ended while its runner was away: the runner hears so instead of waiting for a command.
func TestARunnerThatHasNoCallIsTurnedAwayAfterTheEnd(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c", shortLimit)
	w.Reconcile(call)
	job := w.Job(call)
	r := w.Runner(job, w.Pod(job))
	w.LoseTheAnswerToTheBinding(call)
	w.Outage()
	w.Clock.Set(w.Clock.Now().Add(time.Minute))
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe {
		t.Fatalf("ended %s: %s", s.Reason, s.Message)
	}
	r.Connect(w, "")
	w.Reconcile(call)
	if m := r.Receive(); m.Refuse == nil || !strings.Contains(m.Refuse.Reason, "has ended") {
		t.Errorf("got %+v; want a refusal", m)
	}
}

func TestACancelIsNotLostWhenTheRunnerWasRecordedAndHasNoCall(t *testing.T) {
	for name, warmly := range map[string]bool{"with its own Job": false, "with a waiting pod": true} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			var r *fixture.Runner
			var call *v1alpha1.ToolCall
			if warmly {
				r = fixture.Only(w.WarmUp(w.Environment("env", fixture.Warm(1))))
				call = w.Call("c")
			} else {
				w.Environment("env", fixture.AsDefault)
				call = w.Call("c")
				w.Reconcile(call)
				job := w.Job(call)
				r = w.Runner(job, w.Pod(job))
			}
			w.LoseTheAnswerToTheBinding(call)
			w.Cancel(call)
			w.Restart()
			r.Connect(w, "")
			fixture.Eventually(t, func() bool {
				w.Reconcile(call)
				return w.Get(call).Status.Phase.Terminal()
			})
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseCancelled || s.RetrySafe == nil || !*s.RetrySafe {
				t.Errorf("ended %s/%s, safe to retry: %v", s.Phase, s.Reason, s.RetrySafe)
			}
			if m := r.Receive(); m.Refuse == nil {
				t.Errorf("got %+v; want a refusal", m)
			}
		})
	}
}

// The cancel came after the answer was lost, and the write that ends the call loses its answer as well.
func TestARunnerHearsOfACancelWhoseWriteLostItsAnswer(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	job := w.Job(call)
	r := w.Runner(job, w.Pod(job))
	w.LoseTheAnswerToTheBinding(call)
	w.Cancel(call)
	fixture.Eventually(t, func() bool {
		seen := &v1alpha1.ToolCall{}
		return w.Client.Get(context.Background(), client.ObjectKeyFromObject(call), seen) == nil && seen.Spec.Cancel
	})
	w.LoseTheAnswerToTheBinding(call)
	// Until the cache lets go of the call, the write conflicts.
	fixture.Eventually(t, func() bool { return w.PassError(call) == nil })
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("ended %s/%s, safe to retry: %v", s.Phase, s.Reason, s.RetrySafe)
	}
	if m := r.Receive(); m.Refuse == nil {
		t.Errorf("got %+v; want a refusal", m)
	}
}

func TestAResultIsNotDroppedWhenItsConnectionEndsBeforeAPass(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	r := w.Start(call)
	pod := w.PodNamed(w.Get(call).Status.Pod)
	r.Report(w, call.UID, fixture.Completed)
	w.Disconnect(r)
	// Its pod ends without the copy of the result.
	w.PodStatus(pod, fixture.Terminated("Error", ""))
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonCompleted || s.Stdout != "hi\n" {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	if w.Hub.Result(w.Get(call).Status.Runner.KeyHash, string(w.Get(call).UID)) != nil {
		t.Error("the recorded result is still kept")
	}
}
