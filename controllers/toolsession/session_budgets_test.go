package toolsession_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestABudgetBoundsSessions(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.Budget("b", v1alpha1.ToolBudgetSpec{MaxSessions: ptr.To[int32](1)})
	first, _ := w.ReadySession("first")
	second := w.Session("second")
	w.Settle(second)
	w.Expect(second, v1alpha1.SessionPending, v1alpha1.ReasonBudgetExhausted)
	if message := w.GetSession(second).Status.Message; !strings.Contains(message, `"b"`) || !strings.Contains(message, "maxSessions") {
		t.Errorf("it says %q", message)
	}
	w.Restart()
	w.Settle(second)
	w.Expect(second, v1alpha1.SessionPending, v1alpha1.ReasonBudgetExhausted)
	w.Woken = nil
	w.EditSession(first, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	w.Settle(first)
	if !slices.Contains(w.Woken, "second") {
		t.Errorf("woken: %q", w.Woken)
	}
	w.Settle(second)
	w.Expect(second, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
}

func TestASessionThatABudgetNeverLetsStartEnds(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.Budget("b", v1alpha1.ToolBudgetSpec{MaxSessions: ptr.To[int32](0)})
	s := w.Session("s")
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
	if message := w.GetSession(s).Status.Message; !strings.Contains(message, v1alpha1.ReasonBudgetExceeded) {
		t.Errorf("it says %q", message)
	}
}
