package toolsession_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestTheEndOfASessionHasTheWaitingLookedAt(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", limited(ptr.To(int32(1)), nil))
	first, _ := w.ReadySession("first")
	second, third := w.Session("second"), w.Session("third")
	w.ManageSessions()
	for _, s := range []*v1alpha1.ToolSession{second, third} {
		fixture.Eventually(t, func() bool { return w.GetSession(s).Status.Reason == v1alpha1.ReasonTooManySessions })
	}
	w.EditSession(first, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	fixture.Eventually(t, func() bool { return w.GetSession(second).Status.Job != "" || w.GetSession(third).Status.Job != "" })
	w.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Sessions = nil })
	fixture.Eventually(t, func() bool { return w.GetSession(second).Status.Job != "" && w.GetSession(third).Status.Job != "" })
}

func TestTheEndOfAPodHasItsSessionLookedAt(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	w.Disconnect(r.Runner)
	w.ManageSessions()
	fixture.Eventually(t, func() bool { return w.PhaseOf(s) == v1alpha1.SessionReady })
	w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
	fixture.Eventually(t, func() bool { return w.PhaseOf(s) == v1alpha1.SessionEnded })
}

func TestTheEndOfItsLastCallHasADeletedSessionLookedAt(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s")
	call := w.CallIn(s, "c")
	w.ManageSessions()
	w.DeleteSession(s)
	fixture.Eventually(t, func() bool { return w.PhaseOf(s) == v1alpha1.SessionEnded })
	w.FinishCall(call)
	fixture.Eventually(t, func() bool { _, found := w.Find(s); return !found })
}

func TestACallThatWaitsHasItsSessionLookedAt(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	w.KeepAfter(16*time.Minute, s)
	w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout)
	r.Exit(w, corev1.PodSucceeded)
	w.ManageSessions()
	call := w.CallIn(s, "c")
	w.Waits(call, s)
	fixture.Eventually(t, func() bool { return w.GetSession(s).Status.Job != "" })
}
