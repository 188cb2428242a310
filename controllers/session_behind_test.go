package controllers_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// What the cache of a new operator shows may be older than what the one before it did.
func TestAProcessHearsNothingWhileTheCacheIsBehind(t *testing.T) {
	for name, shown := range map[string]func(starting *v1alpha1.ToolSession) *v1alpha1.ToolSession{
		"without the session":                 func(*v1alpha1.ToolSession) *v1alpha1.ToolSession { return nil },
		"before a process was recorded":       func(s *v1alpha1.ToolSession) *v1alpha1.ToolSession { return s },
		"with an earlier session of the name": func(s *v1alpha1.ToolSession) *v1alpha1.ToolSession { s.UID = "earlier"; return s },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cache := &rough{Client: w.client, fate: func() failure { return succeeds }}
			w.use = cache
			w.rebuild()
			w.environment("env", asDefault)
			s := w.session("s")
			w.settle(s)
			starting := w.getSession(s)
			r := w.startPod(s)
			w.keep(s)
			r.hearBegin()
			cache.sessions = map[types.NamespacedName]*v1alpha1.ToolSession{}
			if o := shown(starting); o != nil {
				cache.sessions[client.ObjectKeyFromObject(s)] = o
			}
			w.restart()
			r.reconnect(w)
			for range 3 {
				if w.keep(s).RequeueAfter == 0 {
					t.Error("the session isn't looked at again")
				}
			}
			cache.sessions = nil
			w.keep(s)
			w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
			w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
			w.keep(s)
			if r.hearEnd(); r.ended != v1alpha1.ReasonEndRequested {
				t.Errorf("the process hears %q", r.ended)
			}
		})
	}
}

// Nothing else may happen to a session whose pod waits, until its lifetime is over.
func TestASessionWhosePodWaitsEndsInTime(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.session("s", func(s *v1alpha1.ToolSession) { s.Spec.MaxLifetimeSeconds = seconds(60) })
	w.settle(s)
	if wake := w.keep(s).RequeueAfter; wake <= 0 || wake > time.Minute {
		t.Errorf("it is looked at again after %s", wake)
	}
	w.keepAfter(61*time.Second, s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonMaxLifetime)
}
