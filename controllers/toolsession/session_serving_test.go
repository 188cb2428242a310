package toolsession_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/testing/fixture"
)

// What the controller of calls is told, from before a session's pod to after its end.
func TestASessionTakesCallsWhileItIsReadyAlone(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	expect := func(s *v1alpha1.ToolSession, when, wait string) {
		t.Helper()
		v := w.Serving(s)
		if v.TakesCalls != (wait == "") || v.Wait != wait || v.TakesCalls && (v.Host.Runner == nil || w.Origin(s).Effective().Name != "env") {
			t.Errorf("%s: takes calls: %v, host: %v, waits: %s (%s)", when, v.TakesCalls, v.Host, v.Wait, v.Message)
		}
	}
	s := w.Session("s", fixture.WithWorkspace)
	expect(s, "new", v1alpha1.ReasonSessionStarting)
	w.Settle(s)
	expect(s, "starting", v1alpha1.ReasonSessionStarting)
	r := w.MakeReady(s)
	expect(s, "ready", "")
	w.Disconnect(r.Runner)
	expect(s, "not connected", v1alpha1.ReasonSessionStarting)
	began := r.Begun
	r.Begun = nil
	r.Reconnect(w)
	expect(s, "connected, and not begun", v1alpha1.ReasonSessionStarting)
	r.Begun = began
	r.Reconnect(w)
	expect(s, "connected again", "")
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	expect(s, "about to be suspended", v1alpha1.ReasonSessionSuspended)
	w.Settle(s)
	expect(s, "suspended", v1alpha1.ReasonSessionSuspended)
	w.DeleteSession(s)
	if v := w.Serving(s); v.TakesCalls {
		t.Error("a deleted session takes calls")
	}
	w.Settle(s)
	// The cache shows it a moment later.
	fixture.Eventually(t, func() bool {
		v := w.Serving(s)
		return v.Session == nil && !v.TakesCalls
	})
}

// Calls and sessions come to the operator in two ways: the cache can have a call, and still show what had its session's name before.
func TestACallsSessionIsTheOneOfNow(t *testing.T) {
	w := fixture.NewWorld(t)
	cache := &fixture.Flaky{Client: w.Client}
	sessions := &toolsession.Servings{
		Objects: apicache.Reader{Reader: cache, Live: fixture.Shared.GetAPIReader()}, Hub: w.Hub, Identity: w.Identity, Earlier: w.Earlier,
	}
	s := w.GetSession(w.Session("s"))
	another, ended := s.DeepCopy(), s.DeepCopy()
	another.UID, ended.UID, ended.Status.Phase = "another", "ended", v1alpha1.SessionEnded
	for name, c := range map[string]struct {
		shown *v1alpha1.ToolSession
		uid   types.UID
		want  types.UID
	}{
		"another one than the call names":     {another, s.UID, s.UID},
		"one that has ended":                  {ended, "", s.UID},
		"one that has ended, which is meant":  {ended, "ended", "ended"},
		"one that takes calls, and any would": {another, "", "another"},
	} {
		cache.Sessions = map[types.NamespacedName]*v1alpha1.ToolSession{client.ObjectKeyFromObject(s): c.shown}
		if v, err := sessions.Look(t.Context(), client.ObjectKeyFromObject(s), string(c.uid)); err != nil || v.Session == nil || v.Session.UID != c.want {
			t.Errorf("%s: got %+v, %v", name, v, err)
		}
	}
}

// A process that serves an earlier pod's session, or another session, isn't this one's.
func TestOnlyTheRecordedIncarnationServesASession(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	again := *r.Begun
	again.Incarnation = 2
	r.Begun = &again
	r.Reconnect(w)
	if v := w.Serving(s); v.TakesCalls || v.Host.IsServing() {
		t.Error("another incarnation takes the session's calls")
	}
}

// What a session with a large environment began with isn't in the cache.
func TestASessionWithALargeEnvironmentOutlivesItsPod(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "LARGE", Value: fixture.LongText(20 << 10)}}
	})
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	if v := w.Serving(s); !v.TakesCalls || len(w.Origin(s).Effective().Spec.Env) != 1 {
		t.Error("the session takes no calls, or its variables are lost")
	}
	w.Disconnect(r.Runner)
	w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
	w.Settle(s)
	w.MakeReady(s)
	w.KeepAfter(16*time.Minute, s)
	if now := w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout); now.Status.Runner.Decision == "" || len(now.Status.Runner.Decision) < 20<<10 {
		t.Errorf("what the session began with takes %d bytes", len(now.Status.Runner.Decision))
	}
}

// Transitions are told once.
func TestTheEndOfASessionIsAnEvent(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	r.Exit(w, "Failed")
	w.DrainEvents()
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	if n := len(w.Events.Events); n != 1 {
		t.Fatalf("%d Events", n)
	}
	if event := fixture.Next(t, w.Events.Events); event[:len("Warning PodLost")] != "Warning PodLost" {
		t.Errorf("Event: %s", event)
	}
}

// The cache leaves the session's large variables out.
func TestASessionBeginsWithItsLargeVariables(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s", func(s *v1alpha1.ToolSession) {
		s.Spec.Env = []v1alpha1.CallEnvVar{{Name: "LARGE", Value: fixture.LongText(20 << 10)}}
	})
	if env := w.Origin(s).Env; len(env) != 1 || len(env[0].Value) != 20<<10 {
		t.Errorf("its calls have %d variables", len(env))
	}
}
