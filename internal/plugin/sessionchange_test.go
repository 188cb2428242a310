package plugin

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestSuspendResumeAndEndSessions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.readySession("dev", onVolume)
	f.readySession("two", onVolume)
	f.readySession("plain")
	f.obeySessions()
	if got := f.run("session", "suspend", "dev", "two"); got != (printed{"dev: suspended\ntwo: suspended\n", "", 0}) {
		t.Errorf("suspend: %+v", got)
	}
	// What the command waited for is there.
	if s := f.getSession("dev"); !s.Spec.Suspend || s.Status.Phase != v1alpha1.SessionSuspended || s.Status.ObservedGeneration != s.Generation {
		t.Errorf("after suspend: %+v", s.Status)
	}
	if got := f.run("session", "resume", "dev"); got != (printed{"dev: resumed\n", "", 0}) {
		t.Errorf("resume: %+v", got)
	}
	if s := f.getSession("dev"); s.Spec.Suspend || s.Status.Phase != v1alpha1.SessionReady {
		t.Errorf("after resume: %+v", s.Status)
	}
	f.run("session", "suspend", "plain").expect(t, 1, "session plain: ", "suspend needs a workspace", "set end to end the session")
	f.run("session", "end", "none", "dev", "plain").expect(t, 1, "dev: ended plain: ended", `session none not found in namespace "`+f.namespace, "session list")
	for _, name := range []string{"dev", "plain"} {
		if s := f.getSession(name); !s.Spec.End || s.Status.Phase != v1alpha1.SessionEnded {
			t.Errorf("after end: %+v", s.Status)
		}
	}
	f.run("session", "end", "dev").expect(t, 0, "dev: ended")
	f.run("session", "resume", "dev").expect(t, 1, "session dev has ended (EndRequested): it can't be resumed")
	f.run("session", "suspend", "dev", "--detach").expect(t, 1, "session dev has ended (EndRequested): it can't be suspended")
}

// With --detach, a command requests the change and doesn't wait: here, nobody carries it out.
func TestChangesOfSessionsDetached(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.readySession("dev", onVolume)
	for verb, want := range map[string]string{"suspend": "dev: suspension requested\n", "end": "dev: end requested\n"} {
		if got := f.run("session", verb, "dev", "--detach"); got != (printed{want, "", 0}) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	if s := f.getSession("dev"); !s.Spec.Suspend || !s.Spec.End {
		t.Errorf("got %+v", s.Spec)
	}
	f.run("session", "resume", "dev", "--detach").expect(t, 0, "dev: resumption requested")
	f.run("session", "suspend", "dev", "none", "--timeout", "100ms").expect(t, 1,
		"session dev was not suspended within --timeout 100ms (Ready): the request stands", "session none not found")
}

// A session that is suspended for idleness has nothing to resume, and the command says what resumes it.
func TestResumeOfAnIdleSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session("dev", onVolume)
	f.setSession("dev", inPhase(v1alpha1.SessionSuspended))
	f.run("session", "resume", "dev").expect(t, 0, "dev: suspended because it was idle: its next call resumes it")
}

// A session that is deleted while the command waits has ended, but it was neither suspended nor resumed.
func TestChangesOfADeletedSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session("one", onVolume)
	f.session("two", onVolume)
	f.operateSessions(func(s *v1alpha1.ToolSession) bool {
		if s.Spec.End || s.Spec.Suspend {
			if err := f.client.Delete(context.Background(), s); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	f.run("session", "end", "one").expect(t, 0, "one: ended")
	f.run("session", "suspend", "two").expect(t, 1, "session two was deleted before it was suspended")
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
	f := newFixture(t)
	f.obeySessions()
	f.readySession("dev", onVolume)
	for _, change := range []string{"suspend", "resume", "end"} {
		if got := f.run("session", change, "dev", "-q", "-o", "name"); got != (printed{"toolsession.toolcall.dev/dev\n", "", 0}) {
			t.Errorf("%s: got %+v", change, got)
		}
		f.run("session", change, "dev", "-o", "toml").expect(t, 1, "unable to match a printer")
	}
	f.readySession("other", onVolume)
	for _, c := range [][2]string{{"suspend", "ToolSession other Suspended"}, {"resume", "ToolSession other Ready"}, {"end", "ToolSession other Ended"}} {
		f.run("session", c[0], "other", "-q", "-o", "jsonpath={.kind} {.metadata.name} {.status.phase}").expect(t, 0, c[1])
	}
	f.readySession("third", onVolume)
	f.run("session", "suspend", "third", "--detach", "-o", "yaml").expect(t, 0, "kind: ToolSession", "suspend: true")
}
