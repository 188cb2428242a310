package controllers_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/decide"
)

func (w *world) serving(s *v1alpha1.ToolSession) *toolsession.Serving {
	w.t.Helper()
	v, err := (&toolsession.Servings{Objects: w.objects, Hub: w.hub, Identity: w.identity, Earlier: w.earlier}).Look(context.Background(), client.ObjectKeyFromObject(s), "")
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// origin is what a session began with.
func (w *world) origin(s *v1alpha1.ToolSession) *decide.Origin {
	w.t.Helper()
	origin, err := (&toolsession.Servings{Objects: w.objects, Hub: w.hub, Identity: w.identity, Earlier: w.earlier}).Origin(context.Background(), w.getSession(s))
	if err != nil || origin == nil {
		w.t.Fatalf("what the session began with: %v, %v", origin, err)
	}
	return origin
}

// What the controller of calls is told, from before a session's pod to after its end.
func TestASessionTakesCallsWhileItIsReadyAlone(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	expect := func(s *v1alpha1.ToolSession, when, wait string) {
		t.Helper()
		v := w.serving(s)
		if v.TakesCalls != (wait == "") || v.Wait != wait || v.TakesCalls && (v.Host.Runner == nil || w.origin(s).Effective().Name != "env") {
			t.Errorf("%s: takes calls: %v, host: %v, waits: %s (%s)", when, v.TakesCalls, v.Host, v.Wait, v.Message)
		}
	}
	s := w.session("s", withWorkspace)
	expect(s, "new", v1alpha1.ReasonSessionStarting)
	w.settle(s)
	expect(s, "starting", v1alpha1.ReasonSessionStarting)
	r := w.makeReady(s)
	expect(s, "ready", "")
	w.disconnect(r.runner)
	expect(s, "not connected", v1alpha1.ReasonSessionStarting)
	began := r.begun
	r.begun = nil
	r.reconnect(w)
	expect(s, "connected, and not begun", v1alpha1.ReasonSessionStarting)
	r.begun = began
	r.reconnect(w)
	expect(s, "connected again", "")
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	expect(s, "about to be suspended", v1alpha1.ReasonSessionSuspended)
	w.settle(s)
	expect(s, "suspended", v1alpha1.ReasonSessionSuspended)
	w.deleteSession(s)
	if v := w.serving(s); v.TakesCalls {
		t.Error("a deleted session takes calls")
	}
	w.settle(s)
	// The cache shows it a moment later.
	eventually(t, func() bool {
		v := w.serving(s)
		return v.Session == nil && !v.TakesCalls
	})
}

// A process that serves an earlier pod's session, or another session, isn't this one's.
func TestOnlyTheRecordedIncarnationServesASession(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	again := *r.begun
	again.Incarnation = 2
	r.begun = &again
	r.reconnect(w)
	if v := w.serving(s); v.TakesCalls || v.Host.IsServing() {
		t.Error("another incarnation takes the session's calls")
	}
}

// What a session with a large environment began with isn't in the cache.
func TestASessionWithALargeEnvironmentOutlivesItsPod(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "LARGE", Value: longText(20 << 10)}}
	})
	s, r := w.readySession("s", withWorkspace)
	if v := w.serving(s); !v.TakesCalls || len(w.origin(s).Effective().Spec.Env) != 1 {
		t.Error("the session takes no calls, or its variables are lost")
	}
	w.disconnect(r.runner)
	w.podStatus(r.pod, terminated("Error", ""))
	w.settle(s)
	w.makeReady(s)
	w.keepAfter(16*time.Minute, s)
	if now := w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout); now.Status.Runner.Decision == "" || len(now.Status.Runner.Decision) < 20<<10 {
		t.Errorf("what the session began with takes %d bytes", len(now.Status.Runner.Decision))
	}
}

// Transitions are told once.
func TestTheEndOfASessionIsAnEvent(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	r.exit(w, "Failed")
	w.drainEvents()
	w.settle(s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	if n := len(w.events.Events); n != 1 {
		t.Fatalf("%d Events", n)
	}
	if event := <-w.events.Events; event[:len("Warning PodLost")] != "Warning PodLost" {
		t.Errorf("Event: %s", event)
	}
}

// The cache leaves the session's large variables out.
func TestASessionBeginsWithItsLargeVariables(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s", func(s *v1alpha1.ToolSession) {
		s.Spec.Env = []v1alpha1.CallEnvVar{{Name: "LARGE", Value: longText(20 << 10)}}
	})
	if env := w.origin(s).Env; len(env) != 1 || len(env[0].Value) != 20<<10 {
		t.Errorf("its calls have %d variables", len(env))
	}
}
