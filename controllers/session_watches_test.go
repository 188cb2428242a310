package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/trigger"
)

// manageSessions has a manager look at the namespace's sessions until the test ends. Its clock stands still, and runners
// don't wake it: what it does, it does because of a watch.
func (w *world) manageSessions() {
	w.t.Helper()
	w.manageWith(func(mgr ctrl.Manager) error {
		w.use = mgr.GetClient()
		w.rebuild()
		return w.sessions.SetupWithManager(mgr, trigger.New())
	})
}

func (w *world) phaseOf(s *v1alpha1.ToolSession) v1alpha1.SessionPhase {
	now, _ := w.find(s)
	return now.Status.Phase
}

func TestTheEndOfASessionHasTheWaitingLookedAt(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", limited(ptr.To(int32(1)), nil))
	first, _ := w.readySession("first")
	second, third := w.session("second"), w.session("third")
	w.manageSessions()
	for _, s := range []*v1alpha1.ToolSession{second, third} {
		eventually(t, func() bool { return w.getSession(s).Status.Reason == v1alpha1.ReasonTooManySessions })
	}
	w.editSession(first, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	eventually(t, func() bool { return w.getSession(second).Status.Job != "" || w.getSession(third).Status.Job != "" })
	w.edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Sessions = nil })
	eventually(t, func() bool { return w.getSession(second).Status.Job != "" && w.getSession(third).Status.Job != "" })
}

func TestTheEndOfAPodHasItsSessionLookedAt(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	w.disconnect(r.runner)
	w.manageSessions()
	eventually(t, func() bool { return w.phaseOf(s) == v1alpha1.SessionReady })
	w.podStatus(r.pod, terminated("Error", ""))
	eventually(t, func() bool { return w.phaseOf(s) == v1alpha1.SessionEnded })
}

func TestTheEndOfItsLastCallHasADeletedSessionLookedAt(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s")
	call := w.callIn(s, "c")
	w.manageSessions()
	w.deleteSession(s)
	eventually(t, func() bool { return w.phaseOf(s) == v1alpha1.SessionEnded })
	w.finishCall(call)
	eventually(t, func() bool { _, found := w.find(s); return !found })
}

func TestACallThatWaitsHasItsSessionLookedAt(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", withWorkspace)
	w.keepAfter(16*time.Minute, s)
	w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout)
	r.exit(w, corev1.PodSucceeded)
	w.manageSessions()
	call := w.callIn(s, "c")
	w.waits(call, s)
	eventually(t, func() bool { return w.getSession(s).Status.Job != "" })
}
