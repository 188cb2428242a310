package toolcall_test

import (
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// A client sends no request for a name that can't stand in a URL, and says so with an error of its own, which never passes.
func TestAReferenceThatCannotBeANameIsNotFound(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.TakeAnyReference()
	for i, name := range []string{"a/b", "..", "a%b"} {
		suffix := string(rune('a' + i))
		inEnvironment := w.Call("e-"+suffix, func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name} })
		inSession := w.Call("s-"+suffix, func(c *v1alpha1.ToolCall) { c.Spec.SessionRef = &v1alpha1.SessionReference{Name: name} })
		cancelled := w.Call("c-"+suffix, func(c *v1alpha1.ToolCall) {
			c.Spec.SessionRef, c.Spec.Cancel = &v1alpha1.SessionReference{Name: name}, true
		})
		for call, reason := range map[*v1alpha1.ToolCall]string{
			inEnvironment: v1alpha1.ReasonEnvironmentNotFound, inSession: v1alpha1.ReasonSessionNotFound, cancelled: v1alpha1.ReasonCancelRequested,
		} {
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Reason != reason || !*s.RetrySafe {
				t.Errorf("%s %q: %s/%s: %s", call.Name, name, s.Phase, s.Reason, s.Message)
			}
		}
		session := w.Session("t-"+suffix, func(s *v1alpha1.ToolSession) { s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name} })
		w.Keep(session)
		if s := w.GetSession(session).Status; s.Phase != v1alpha1.SessionEnded {
			t.Errorf("a session in %q: %s/%s: %s", name, s.Phase, s.Reason, s.Message)
		}
		gone := session.DeepCopy()
		gone.Name = name
		w.Keep(gone)
	}
}
