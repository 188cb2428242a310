package sessions

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestSuspendResumeAndEndSessions(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev", plugintest.OnVolume)
	f.ReadySession("two", plugintest.OnVolume)
	f.ReadySession("plain")
	f.ObeySessions()
	if got := f.Run("session", "suspend", "dev", "two"); got != (plugintest.Printed{Out: "dev: suspended\ntwo: suspended\n"}) {
		t.Errorf("suspend: %+v", got)
	}
	// What the command waited for is there.
	if s := f.GetSession("dev"); !s.Spec.Suspend || s.Status.Phase != v1alpha1.SessionSuspended || s.Status.ObservedGeneration != s.Generation {
		t.Errorf("after suspend: %+v", s.Status)
	}
	if got := f.Run("session", "resume", "dev"); got != (plugintest.Printed{Out: "dev: resumed\n"}) {
		t.Errorf("resume: %+v", got)
	}
	if s := f.GetSession("dev"); s.Spec.Suspend || s.Status.Phase != v1alpha1.SessionReady {
		t.Errorf("after resume: %+v", s.Status)
	}
	f.Run("session", "suspend", "plain").Expect(t, 1, "session plain: ", "suspend needs a workspace", "set end to end the session")
	f.Run("session", "end", "none", "dev", "plain").Expect(t, 1, "dev: ended plain: ended", `session none not found in namespace "`+f.Namespace, "session list")
	for _, name := range []string{"dev", "plain"} {
		if s := f.GetSession(name); !s.Spec.End || s.Status.Phase != v1alpha1.SessionEnded {
			t.Errorf("after end: %+v", s.Status)
		}
	}
	f.Run("session", "end", "dev").Expect(t, 0, "dev: ended")
	f.Run("session", "resume", "dev").Expect(t, 1, "session dev has ended (EndRequested): it can't be resumed")
	f.Run("session", "suspend", "dev", "--detach").Expect(t, 1, "session dev has ended (EndRequested): it can't be suspended")
}

// With --detach, a command requests the change and doesn't wait: here, nobody carries it out.
func TestChangesOfSessionsDetached(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev", plugintest.OnVolume)
	for verb, want := range map[string]string{"suspend": "dev: suspension requested\n", "end": "dev: end requested\n"} {
		if got := f.Run("session", verb, "dev", "--detach"); got != (plugintest.Printed{Out: want}) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	if s := f.GetSession("dev"); !s.Spec.Suspend || !s.Spec.End {
		t.Errorf("got %+v", s.Spec)
	}
	f.Run("session", "resume", "dev", "--detach").Expect(t, 0, "dev: resumption requested")
	f.Run("session", "suspend", "dev", "none", "--timeout", "100ms").Expect(t, 1,
		"session dev was not suspended within --timeout 100ms (Ready): the request stands", "session none not found")
}

// A session that takes long hides nothing of those behind it.
func TestChangesThatTakeLong(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("slow")
	f.ReadySession("fast")
	f.OperateSessions(func(s *v1alpha1.ToolSession) bool {
		ends := s.Name == "fast" && s.Spec.End && s.Status.Phase != v1alpha1.SessionEnded
		if ends {
			s.Status.Phase = v1alpha1.SessionEnded
		}
		return ends
	})
	got := f.Run("session", "end", "slow", "fast", "--timeout", "2s")
	got.Expect(t, 1, "fast: ended", "session slow was not ended within --timeout 2s (Ready): the request stands")
	if strings.Contains(got.Err, "fast") {
		t.Errorf("messages: %s", got.Err)
	}
}

// A session that is suspended for idleness has nothing to resume, and the command says what resumes it.
func TestResumeOfAnIdleSession(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Session("dev", plugintest.OnVolume)
	f.SetSession("dev", plugintest.InPhase(v1alpha1.SessionSuspended))
	f.Run("session", "resume", "dev").Expect(t, 0, "dev: suspended because it was idle: its next call resumes it")
}

// A session that is deleted while the command waits has ended, but it was neither suspended nor resumed.
func TestChangesOfADeletedSession(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Session("one", plugintest.OnVolume)
	f.Session("two", plugintest.OnVolume)
	f.OperateSessions(func(s *v1alpha1.ToolSession) bool {
		if s.Spec.End || s.Spec.Suspend {
			if err := f.Client.Delete(context.Background(), s); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	f.Run("session", "end", "one").Expect(t, 0, "one: ended")
	f.Run("session", "suspend", "two").Expect(t, 1, "session two was deleted before it was suspended")
}

// A phase of before the change isn't what the command waits for.
func TestGoalsNeedACurrentStatus(t *testing.T) {
	t.Parallel()
	session := func(phase v1alpha1.SessionPhase, suspend bool, observed int64) *v1alpha1.ToolSession {
		return &v1alpha1.ToolSession{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 3},
			Spec:       v1alpha1.ToolSessionSpec{Suspend: suspend},
			Status:     v1alpha1.ToolSessionStatus{Phase: phase, ObservedGeneration: observed, Reason: "Odd"},
		}
	}
	for name, c := range map[string]struct {
		session *v1alpha1.ToolSession
		ready   bool
		idle    bool
		pending string
	}{
		"ready":                  {session(v1alpha1.SessionReady, false, 3), true, false, "session s: waiting: Odd"},
		"ready before":           {session(v1alpha1.SessionReady, false, 2), false, false, "session s: waiting for the operator"},
		"idle":                   {session(v1alpha1.SessionSuspended, false, 3), false, true, "session s: waiting: Odd"},
		"suspended before":       {session(v1alpha1.SessionSuspended, false, 2), false, false, "session s: waiting for the operator"},
		"suspended":              {session(v1alpha1.SessionSuspended, true, 3), false, false, "session s: waiting: Odd"},
		"nobody has seen it yet": {session("", false, 0), false, false, "session s: waiting for the operator"},
	} {
		if readyGoal.reached(c.session) != c.ready || isIdle(c.session) != c.idle || pendingSession(c.session) != c.pending {
			t.Errorf("%s: ready %t, idle %t, %q", name, readyGoal.reached(c.session), isIdle(c.session), pendingSession(c.session))
		}
	}
}

// With -o, the commands print the sessions as they are after the change, and refuse formats that they don't have.
func TestChangesPrintSessions(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ObeySessions()
	f.ReadySession("dev", plugintest.OnVolume)
	for _, change := range []string{"suspend", "resume", "end"} {
		if got := f.Run("session", change, "dev", "-q", "-o", "name"); got != (plugintest.Printed{Out: "toolsession.toolcall.dev/dev\n"}) {
			t.Errorf("%s: got %+v", change, got)
		}
		f.Run("session", change, "dev", "-o", "toml").Expect(t, 1, "unable to match a printer")
	}
	f.ReadySession("other", plugintest.OnVolume)
	for _, c := range [][2]string{{"suspend", "ToolSession other Suspended"}, {"resume", "ToolSession other Ready"}, {"end", "ToolSession other Ended"}} {
		f.Run("session", c[0], "other", "-q", "-o", "jsonpath={.kind} {.metadata.name} {.status.phase}").Expect(t, 0, c[1])
	}
	f.ReadySession("third", plugintest.OnVolume)
	f.Run("session", "suspend", "third", "--detach", "-o", "yaml").Expect(t, 0, "kind: ToolSession", "suspend: true")
}
