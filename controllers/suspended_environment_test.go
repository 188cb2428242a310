package controllers_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// suspend sets or clears the switch for an incident, and waits until the cache shows it.
func (w *world) suspend(env *v1alpha1.ExecutionEnvironment, is bool) {
	w.t.Helper()
	w.change(env, func() { env.Spec.Suspend = is })
}

func (w *world) isHeld(call *v1alpha1.ToolCall) {
	w.t.Helper()
	now := w.get(call)
	if now.Status.Phase != v1alpha1.PhasePending || whyNotStarted(now) != v1alpha1.ReasonEnvironmentSuspended || condition(now, v1alpha1.ConditionAccepted) != metav1.ConditionTrue {
		w.t.Fatalf("%s is %s/%s, not started because of %q: %s", call.Name, now.Status.Phase, now.Status.Reason, whyNotStarted(now), now.Status.Message)
	}
}

func TestASuspendedEnvironmentHoldsNewCallsUntilItIsResumed(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.warmUp(env)
	w.suspend(env, true)
	call, cancelled := w.call("c"), w.call("cancelled")
	for range 3 {
		w.reconcile(call)
		w.reconcile(cancelled)
		w.isHeld(call)
		w.clock.set(w.clock.Now().Add(time.Hour))
	}
	if w.hasJob(call) || w.get(call).Status.Job != "" {
		t.Errorf("it has a Job: %+v", w.get(call).Status)
	}
	w.cancel(cancelled)
	w.reconcile(cancelled)
	if s := w.get(cancelled).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("the cancelled one is %s/%s", s.Phase, s.Reason)
	}
	w.suspend(env, false)
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseRunning || s.Timings.Path != v1alpha1.PathWarm {
		t.Errorf("resumed, the status is %+v", s)
	}
}

func TestARunningCallOfASuspendedEnvironmentGoesOn(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	r := w.start(call)
	w.suspend(env, true)
	w.reconcile(call)
	w.stillRunning(call, "suspended,")
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// The runner may wait for hours: nothing ends the call meanwhile but a cancel, and it is handed over once.
func TestACallWhoseRunnerComesWhileItsEnvironmentIsSuspendedIsHeld(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault)
	call, cancelled := w.call("c"), w.call("cancelled")
	runners := map[*v1alpha1.ToolCall]*runner{}
	for _, c := range []*v1alpha1.ToolCall{call, cancelled} {
		w.accept(c)
	}
	w.suspend(env, true)
	for _, c := range []*v1alpha1.ToolCall{call, cancelled} {
		job := w.job(c)
		runners[c] = w.runner(job, w.pod(job))
		for range 3 {
			w.reconcile(c)
			w.isHeld(c)
			if w.get(c).Status.Runner != nil {
				t.Fatal("the runner is recorded")
			}
			w.clock.set(w.clock.Now().Add(time.Hour))
		}
	}
	w.cancel(cancelled)
	w.reconcile(cancelled)
	if s := w.get(cancelled).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("the cancelled one is %s/%s", s.Phase, s.Reason)
	}
	if m := runners[cancelled].receive(); m.Refuse == nil {
		t.Errorf("the cancelled one's runner got %+v; want a refusal", m)
	}
	w.suspend(env, false)
	w.reconcile(call)
	if m := runners[call].receive(); m.Assign == nil {
		t.Errorf("got %+v; want the call and nothing before it", m)
	}
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("resumed, the status is %+v", s)
	}
}

// The connection of a held call's runner may break, at any time: neither that nor the time that passed while the
// environment was suspended ends the call.
func TestAHeldCallWhoseRunnerIsNotConnectedStaysHeld(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault)
	call, silent := w.call("c"), w.call("silent")
	for _, c := range []*v1alpha1.ToolCall{call, silent} {
		w.accept(c)
	}
	w.suspend(env, true)
	pod := w.pod(w.job(call))
	w.runner(w.job(call), pod)
	w.pod(w.job(silent))
	for range 2 {
		for _, c := range []*v1alpha1.ToolCall{call, silent} {
			w.reconcile(c)
			w.isHeld(c)
		}
		w.clock.set(w.clock.Now().Add(time.Hour))
		w.restart()
	}
	w.suspend(env, false)
	for range 2 {
		for _, c := range []*v1alpha1.ToolCall{call, silent} {
			w.reconcile(c)
			if now := w.get(c); now.Status.Phase != v1alpha1.PhasePending || whyNotStarted(now) != v1alpha1.ReasonNotStarted {
				t.Fatalf("resumed, %s is %s/%s, %s", c.Name, now.Status.Phase, now.Status.Reason, whyNotStarted(now))
			}
		}
		w.clock.set(w.clock.Now().Add(100 * time.Second))
	}
	r := w.runner(w.job(call), pod)
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		t.Errorf("got %+v; want the call", m)
	}
	w.reconcile(silent)
	if s := w.get(silent).Status; s.Reason != v1alpha1.ReasonStartTimeout || !*s.RetrySafe {
		t.Errorf("the one that never came is %s/%s", s.Phase, s.Reason)
	}
}
