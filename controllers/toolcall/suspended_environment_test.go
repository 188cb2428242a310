package toolcall_test

import (
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestASuspendedEnvironmentHoldsNewCallsUntilItIsResumed(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.WarmUp(env)
	w.Suspend(env, true)
	call, cancelled := w.Call("c"), w.Call("cancelled")
	for range 3 {
		w.Reconcile(call)
		w.Reconcile(cancelled)
		w.IsHeld(call)
		w.Clock.Set(w.Clock.Now().Add(time.Hour))
	}
	if w.HasJob(call) || w.Get(call).Status.Job != "" {
		t.Errorf("it has a Job: %+v", w.Get(call).Status)
	}
	w.Cancel(cancelled)
	w.Reconcile(cancelled)
	if s := w.Get(cancelled).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("the cancelled one is %s/%s", s.Phase, s.Reason)
	}
	w.Suspend(env, false)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseRunning || s.Timings.Path != v1alpha1.PathWarm {
		t.Errorf("resumed, the status is %+v", s)
	}
}

func TestARunningCallOfASuspendedEnvironmentGoesOn(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	r := w.Start(call)
	w.Suspend(env, true)
	w.Reconcile(call)
	w.StillRunning(call, "suspended,")
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// The runner may wait for hours: nothing ends the call meanwhile but a cancel, and it is handed over once.
func TestACallWhoseRunnerComesWhileItsEnvironmentIsSuspendedIsHeld(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault)
	call, cancelled := w.Call("c"), w.Call("cancelled")
	runners := map[*v1alpha1.ToolCall]*fixture.Runner{}
	for _, c := range []*v1alpha1.ToolCall{call, cancelled} {
		w.Accept(c)
	}
	w.Suspend(env, true)
	for _, c := range []*v1alpha1.ToolCall{call, cancelled} {
		job := w.Job(c)
		runners[c] = w.Runner(job, w.Pod(job))
		for range 3 {
			w.Reconcile(c)
			w.IsHeld(c)
			if w.Get(c).Status.Runner != nil {
				t.Fatal("the runner is recorded")
			}
			w.Clock.Set(w.Clock.Now().Add(time.Hour))
		}
	}
	w.Cancel(cancelled)
	w.Reconcile(cancelled)
	if s := w.Get(cancelled).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("the cancelled one is %s/%s", s.Phase, s.Reason)
	}
	if m := runners[cancelled].Receive(); m.Refuse == nil {
		t.Errorf("the cancelled one's runner got %+v; want a refusal", m)
	}
	w.Suspend(env, false)
	w.Reconcile(call)
	if m := runners[call].Receive(); m.Assign == nil {
		t.Errorf("got %+v; want the call and nothing before it", m)
	}
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("resumed, the status is %+v", s)
	}
}

// The connection of a held call's runner may break, at any time: neither that nor the time that passed while the
// environment was suspended ends the call.
func TestAHeldCallWhoseRunnerIsNotConnectedStaysHeld(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault)
	call, silent := w.Call("c"), w.Call("silent")
	for _, c := range []*v1alpha1.ToolCall{call, silent} {
		w.Accept(c)
	}
	w.Suspend(env, true)
	pod := w.Pod(w.Job(call))
	w.Runner(w.Job(call), pod)
	w.Pod(w.Job(silent))
	for range 2 {
		for _, c := range []*v1alpha1.ToolCall{call, silent} {
			w.Reconcile(c)
			w.IsHeld(c)
		}
		w.Clock.Set(w.Clock.Now().Add(time.Hour))
		w.Restart()
	}
	w.Suspend(env, false)
	for range 2 {
		for _, c := range []*v1alpha1.ToolCall{call, silent} {
			w.Reconcile(c)
			if now := w.Get(c); now.Status.Phase != v1alpha1.PhasePending || fixture.WhyNotStarted(now) != v1alpha1.ReasonNotStarted {
				t.Fatalf("resumed, %s is %s/%s, %s", c.Name, now.Status.Phase, now.Status.Reason, fixture.WhyNotStarted(now))
			}
		}
		w.Clock.Set(w.Clock.Now().Add(100 * time.Second))
	}
	r := w.Runner(w.Job(call), pod)
	w.Reconcile(call)
	if m := r.Receive(); m.Assign == nil {
		t.Errorf("got %+v; want the call", m)
	}
	w.Reconcile(silent)
	if s := w.Get(silent).Status; s.Reason != v1alpha1.ReasonStartTimeout || !*s.RetrySafe {
		t.Errorf("the one that never came is %s/%s", s.Phase, s.Reason)
	}
}
