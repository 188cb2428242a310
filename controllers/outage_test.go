package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// longerThanEveryDeadline is an outage that no time limit of a short call outlasts.
const longerThanEveryDeadline = 8 * time.Hour

func shortLimit(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(10)) }

// outage replaces the operator by one that starts a long time later.
func (w *world) outage() {
	w.t.Helper()
	w.clock.set(w.clock.Now().Add(longerThanEveryDeadline))
	w.restart()
}

// disconnect ends a runner's connection, and waits until the hub has noticed.
func (w *world) disconnect(r *runner) {
	w.t.Helper()
	r.conn.Close()
	eventually(w.t, func() bool { return w.hub.Session(r.config.Hello.JobUID) == nil })
}

// stillRunning fails the test when the call has ended.
func (w *world) stillRunning(call *v1alpha1.ToolCall, when string) {
	w.t.Helper()
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		w.t.Fatalf("%s the call is %s/%s: %s", when, s.Phase, s.Reason, s.Message)
	}
}

func TestAResultSurvivesAnOutageThatIsLongerThanEveryDeadline(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c", shortLimit)
	w.reconcile(call)
	r := w.start(call)
	w.disconnect(r)
	w.outage()

	// The runner takes a few seconds to find the new operator.
	if wake := w.reconcile(call).RequeueAfter; wake <= 5*time.Second {
		t.Errorf("the new operator looks again after %s", wake)
	}
	w.stillRunning(call, "before the runner could dial in")
	w.clock.set(w.clock.Now().Add(5 * time.Second))
	w.reconcile(call)
	w.stillRunning(call, "while the runner dials in")
	r.connect(w, string(call.UID))
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonCompleted || s.Stdout != "hi\n" {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	if m := r.receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement", m)
	}
}

// The hello is there and the result's frame isn't: it may be large, and the network slow.
func TestAConnectedRunnerIsWaitedForHoweverLongItsResultTakes(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c", shortLimit)
	w.reconcile(call)
	r := w.start(call)
	w.disconnect(r)
	w.outage()
	r.connect(w, string(call.UID))
	for range 3 {
		w.clock.set(w.clock.Now().Add(longerThanEveryDeadline))
		w.reconcile(call)
		w.stillRunning(call, "hours after the hello")
	}
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

func TestTheWallClockNeverEndsACallWhoseRunnerIsConnected(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c", shortLimit)
	w.reconcile(call)
	r := w.start(call)
	for range 3 {
		w.clock.set(w.clock.Now().Add(10 * 24 * time.Hour))
		w.reconcile(call)
		w.stillRunning(call, "days later")
		if w.job(call).DeletionTimestamp != nil {
			t.Fatal("the Job of a connected runner is deleted")
		}
	}
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if m := r.receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement and nothing before it", m)
	}
}

// The call ended while its runner was away: the runner hears so instead of waiting for a command.
func TestARunnerThatHasNoCallIsTurnedAwayAfterTheEnd(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c", shortLimit)
	w.reconcile(call)
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.loseTheAnswerToTheBinding(call)
	w.outage()
	w.clock.set(w.clock.Now().Add(time.Minute))
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe {
		t.Fatalf("ended %s: %s", s.Reason, s.Message)
	}
	r.connect(w, "")
	w.reconcile(call)
	if m := r.receive(); m.Refuse == nil || !strings.Contains(m.Refuse.Reason, "has ended") {
		t.Errorf("got %+v; want a refusal", m)
	}
}

// loseTheAnswerToTheBinding has the write that records the runner succeed without the operator hearing of it.
func (w *world) loseTheAnswerToTheBinding(call *v1alpha1.ToolCall) {
	w.t.Helper()
	before := w.reconciler.Client
	w.reconciler.Client = &flaky{Client: w.client, fail: func() failure { return answerIsLost }}
	_, err := w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	w.reconciler.Client = before
	if err == nil || w.get(call).Status.Runner == nil {
		w.t.Fatalf("the write was not cut short: %v", err)
	}
}

func TestACancelIsNotLostWhenTheRunnerWasRecordedAndHasNoCall(t *testing.T) {
	for name, warmly := range map[string]bool{"with its own Job": false, "with a waiting pod": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var r *runner
			var call *v1alpha1.ToolCall
			if warmly {
				r = only(w.warmUp(w.environment("env", warm(1))))
				call = w.call("c")
			} else {
				w.environment("env", asDefault)
				call = w.call("c")
				w.reconcile(call)
				job := w.job(call)
				r = w.runner(job, w.pod(job))
			}
			w.loseTheAnswerToTheBinding(call)
			w.cancel(call)
			w.restart()
			r.connect(w, "")
			eventually(t, func() bool {
				w.reconcile(call)
				return w.get(call).Status.Phase.Terminal()
			})
			if s := w.get(call).Status; s.Phase != v1alpha1.PhaseCancelled || s.RetrySafe == nil || !*s.RetrySafe {
				t.Errorf("ended %s/%s, safe to retry: %v", s.Phase, s.Reason, s.RetrySafe)
			}
			if m := r.receive(); m.Refuse == nil {
				t.Errorf("got %+v; want a refusal", m)
			}
		})
	}
}

// The cancel came after the answer was lost, and the write that ends the call loses its answer as well.
func TestARunnerHearsOfACancelWhoseWriteLostItsAnswer(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.loseTheAnswerToTheBinding(call)
	w.cancel(call)
	eventually(t, func() bool {
		seen := &v1alpha1.ToolCall{}
		return w.client.Get(context.Background(), client.ObjectKeyFromObject(call), seen) == nil && seen.Spec.Cancel
	})
	w.loseTheAnswerToTheBinding(call)
	// Until the cache lets go of the call, the write conflicts.
	eventually(t, func() bool { return w.passError(call) == nil })
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("ended %s/%s, safe to retry: %v", s.Phase, s.Reason, s.RetrySafe)
	}
	if m := r.receive(); m.Refuse == nil {
		t.Errorf("got %+v; want a refusal", m)
	}
}

func TestAResultIsNotDroppedWhenItsConnectionEndsBeforeAPass(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	r := w.start(call)
	pod := w.podNamed(w.get(call).Status.Pod)
	r.report(w, call.UID, completed)
	w.disconnect(r)
	// Its pod ends without the copy of the result.
	w.podStatus(pod, terminated("Error", ""))
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonCompleted || s.Stdout != "hi\n" {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	if w.hub.Result(w.get(call).Status.Runner.KeyHash, string(w.get(call).UID)) != nil {
		t.Error("the recorded result is still kept")
	}
}
