package toolsession_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// What the cache of a new operator shows may be older than what the one before it did.
func TestAProcessHearsNothingWhileTheCacheIsBehind(t *testing.T) {
	for name, shown := range map[string]func(starting *v1alpha1.ToolSession) *v1alpha1.ToolSession{
		"without the session":                 func(*v1alpha1.ToolSession) *v1alpha1.ToolSession { return nil },
		"before a process was recorded":       func(s *v1alpha1.ToolSession) *v1alpha1.ToolSession { return s },
		"with an earlier session of the name": func(s *v1alpha1.ToolSession) *v1alpha1.ToolSession { s.UID = "earlier"; return s },
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			cache := &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure { return fixture.Succeeds }}
			w.Use = cache
			w.Rebuild()
			w.Environment("env", fixture.AsDefault)
			s := w.Session("s")
			w.Settle(s)
			starting := w.GetSession(s)
			r := w.StartPod(s)
			w.Keep(s)
			r.HearBegin()
			cache.Sessions = map[types.NamespacedName]*v1alpha1.ToolSession{}
			if o := shown(starting); o != nil {
				cache.Sessions[client.ObjectKeyFromObject(s)] = o
			}
			w.Restart()
			r.Reconnect(w)
			for range 3 {
				if w.Keep(s).RequeueAfter == 0 {
					t.Error("the session isn't looked at again")
				}
			}
			cache.Sessions = nil
			w.Keep(s)
			w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
			w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
			w.Keep(s)
			if r.HearEnd(); r.Ended != v1alpha1.ReasonEndRequested {
				t.Errorf("the process hears %q", r.Ended)
			}
		})
	}
}

// Nothing else may happen to a session whose pod waits, until its lifetime is over.
func TestASessionWhosePodWaitsEndsInTime(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.Session("s", func(s *v1alpha1.ToolSession) { s.Spec.MaxLifetimeSeconds = seconds(60) })
	w.Settle(s)
	if wake := w.Keep(s).RequeueAfter; wake <= 0 || wake > time.Minute {
		t.Errorf("it is looked at again after %s", wake)
	}
	w.KeepAfter(61*time.Second, s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonMaxLifetime)
}
