package controllers_test

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	callqueue "toolcall.dev/operator/internal/queue"
)

func by(user string) func(*v1alpha1.ToolCall) {
	return func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Username: user} }
}

// withBudget bounds what a requester keeps pending. The operator of the tests works in all namespaces: user is a name
// that no other test has.
func (w *world) withBudget(budget callqueue.BudgetOptions) (user string) {
	w.pending = budget
	w.rebuild()
	return "user-of-" + w.namespace
}

func (w *world) deniedOverBudget(call *v1alpha1.ToolCall, says string) {
	w.t.Helper()
	w.reconcile(call)
	s := w.get(call).Status
	if s.Phase != v1alpha1.PhaseDenied || s.Reason != v1alpha1.ReasonBudgetExceeded || !strings.Contains(s.Message, says) {
		w.t.Errorf("%s is %s/%s: %q; want a denial that says %q", call.Name, s.Phase, s.Reason, s.Message, says)
	}
	if w.hasJob(call) {
		w.t.Errorf("%s has a Job", call.Name)
	}
}

func (w *world) letIn(call *v1alpha1.ToolCall) {
	w.t.Helper()
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase.Terminal() || !w.hasJob(call) {
		w.t.Errorf("%s is %s/%s: %s", call.Name, s.Phase, s.Reason, s.Message)
	}
}

func TestARequesterWithTooManyPendingCallsIsDeniedAndNobodyElse(t *testing.T) {
	w := newWorld(t)
	user := w.withBudget(callqueue.BudgetOptions{MaxCalls: 2})
	w.environment("env", asDefault)
	first, second := w.call("first", by(user)), w.call("second", by(user))
	w.letIn(first)
	w.letIn(second)
	w.deniedOverBudget(w.call("third", by(user)), "2 calls of this requester are pending")
	w.letIn(w.call("of-another", by(user+"-2")))
	w.start(first)
	fourth := w.call("fourth", by(user))
	w.letIn(fourth)

	// The next operator counts those that are pending again: one has said that it was accepted, one has only its Job.
	w.accept(second)
	w.restart()
	w.deniedOverBudget(w.call("fifth", by(user)), "2 calls of this requester are pending")
	w.reconcile(second)
	w.start(second)
	w.letIn(w.call("sixth", by(user)))
}

func TestARequesterWithTooMuchPendingInputIsDenied(t *testing.T) {
	w := newWorld(t)
	user := w.withBudget(callqueue.BudgetOptions{MaxBytes: 10 << 10})
	w.environment("env", asDefault)
	large := func(c *v1alpha1.ToolCall) { c.Spec.Stdin = longText(6 << 10) }
	w.letIn(w.call("first", by(user), large))
	w.deniedOverBudget(w.call("second", by(user), large), "10240 is the limit")
	w.letIn(w.call("small", by(user)))
	w.restart()
	w.deniedOverBudget(w.call("third", by(user), large), "10240 is the limit")
}

// A call that waits for its turn was let in before: that a newer one asks the new operator first changes nothing.
func TestACallThatWasLetInIsNotDeniedByTheNextOperator(t *testing.T) {
	w := newWorld(t)
	user := w.withBudget(callqueue.BudgetOptions{MaxCalls: 1})
	w.environment("env", atMost(1))
	running := w.call("running", by(user))
	w.reconcile(running)
	w.start(running)
	waits := w.call("waits", by(user))
	w.reconcile(waits)
	if !queued(w.get(waits)) {
		t.Fatalf("the status is %+v", w.get(waits).Status)
	}
	w.restart()
	w.deniedOverBudget(w.call("newer", by(user)), "1 calls of this requester are pending")
	w.reconcile(waits)
	if !queued(w.get(waits)) {
		t.Errorf("after the restart the status is %+v", w.get(waits).Status)
	}
}
