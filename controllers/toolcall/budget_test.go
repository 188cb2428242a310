package toolcall_test

import (
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	callqueue "toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/testing/fixture"
)

func by(user string) func(*v1alpha1.ToolCall) {
	return func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Username: user} }
}

func TestARequesterWithTooManyPendingCallsIsDeniedAndNobodyElse(t *testing.T) {
	w := fixture.NewWorld(t)
	user := w.WithBudget(callqueue.PendingOptions{MaxCalls: 2})
	w.Environment("env", fixture.AsDefault)
	first, second := w.Call("first", by(user)), w.Call("second", by(user))
	w.LetIn(first)
	w.LetIn(second)
	w.DeniedOverBudget(w.Call("third", by(user)), "2 calls of this requester are pending")
	w.LetIn(w.Call("of-another", by(user+"-2")))
	w.Start(first)
	fourth := w.Call("fourth", by(user))
	w.LetIn(fourth)

	// The next operator counts those that are pending again: one has said that it was accepted, one has only its Job.
	w.Accept(second)
	w.Restart()
	w.DeniedOverBudget(w.Call("fifth", by(user)), "2 calls of this requester are pending")
	w.Reconcile(second)
	w.Start(second)
	w.LetIn(w.Call("sixth", by(user)))
}

func TestARequesterWithTooMuchPendingInputIsDenied(t *testing.T) {
	w := fixture.NewWorld(t)
	user := w.WithBudget(callqueue.PendingOptions{MaxBytes: 10 << 10})
	w.Environment("env", fixture.AsDefault)
	large := func(c *v1alpha1.ToolCall) { c.Spec.Stdin = fixture.LongText(6 << 10) }
	w.LetIn(w.Call("first", by(user), large))
	w.DeniedOverBudget(w.Call("second", by(user), large), "10240 is the limit")
	w.LetIn(w.Call("small", by(user)))
	w.Restart()
	w.DeniedOverBudget(w.Call("third", by(user), large), "10240 is the limit")
}

// A call that waits for its turn was let in before: that a newer one asks the new operator first changes nothing.
func TestACallThatWasLetInIsNotDeniedByTheNextOperator(t *testing.T) {
	w := fixture.NewWorld(t)
	user := w.WithBudget(callqueue.PendingOptions{MaxCalls: 1})
	w.Environment("env", atMost(1))
	running := w.Call("running", by(user))
	w.Reconcile(running)
	w.Start(running)
	waits := w.Call("waits", by(user))
	w.Reconcile(waits)
	if !queued(w.Get(waits)) {
		t.Fatalf("the status is %+v", w.Get(waits).Status)
	}
	w.Restart()
	w.DeniedOverBudget(w.Call("newer", by(user)), "1 calls of this requester are pending")
	w.Reconcile(waits)
	if !queued(w.Get(waits)) {
		t.Errorf("after the restart the status is %+v", w.Get(waits).Status)
	}
}
