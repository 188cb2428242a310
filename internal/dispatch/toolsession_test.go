package dispatch_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// expect compares what happened with what should have.
func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestARunnerThatWaitsBecomesASessionsForGood(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newMember(t, n, o)
		if _, serves := m.session.ToolSession(); serves || !m.session.IsWaiting() {
			t.Error("a runner that waits serves a session")
		}
		if m.assign("c1") == nil || m.session.Stop("c1", "call-c1", result.CancelRequested) == nil || m.session.End("no") == nil {
			t.Error("a runner that serves no session is given work of one")
		}
		if m.session.Begin(&wire.Begin{SessionUID: "s1", SessionName: "session"}) == nil {
			t.Error("a session without calls begins")
		}
		for range 3 {
			if err := m.session.Begin(theBegin()); err != nil {
				t.Fatal(err)
			}
		}
		if got, serves := m.session.ToolSession(); !serves || got != theSession || m.session.IsWaiting() {
			t.Errorf("it serves %+v", got)
		}
		other := theBegin()
		other.SessionUID = "s2"
		later := theBegin()
		later.Incarnation++
		if m.session.Begin(other) == nil || m.session.Begin(later) == nil {
			t.Error("another session begins in it")
		}
		if m.session.AssignTo("s2", assignmentOf("c1")) == nil || m.session.Assign(assignmentOf("c1")) == nil || m.session.Cancel("c1") == nil {
			t.Error("it takes a call of another session, or of none")
		}
		expect(t, "the runner heard", m.hears(), "begin")
	})
}

func TestARunnerOfACallServesNoSession(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		for job, callUID := range map[string]string{"made": "", "has": "c1"} {
			p := n.peer(t)
			p.hello(o, job, callUID)
			if s := o.event(t); s.Begin(theBegin()) == nil {
				t.Errorf("a session begins in a runner that %s a call", job)
			}
			go p.awaitEnd()
		}
	})
}

// Rule 5: an assignment can be repeated, and each answer counts.
func TestAnAssignmentIsSentOnceAndItsAnswersAreTaken(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1", "c1", "c1")
		expect(t, "heard", m.hears(), "assign c1")
		expect(t, "assigned", states(m.session.HeldCalls()), "c1 Assigned")
		m.say(&wire.Message{Started: &wire.Started{CallUID: "c1", StartedMicroseconds: 42}})
		if call, ok := m.session.HeldCall("c1"); !ok || call.State != dispatch.Running || call.StartedMicroseconds != 42 || call.Decision != "sealed-c1" {
			t.Errorf("started: %+v", call)
		}
		expect(t, "news of a start", o.news(), "")
		m.report("c1", "sealed-c1")
		m.mustAssign("c1")
		expect(t, "reported", states(m.session.HeldCalls()), "c1 Ended")
		expect(t, "news of a result", o.news(), "call-c1")
		if r := o.hub.Result(m.session.KeyHash(), "c1"); r == nil || r.Decision != "sealed-c1" || m.session.ResultOf("c1") != r {
			t.Errorf("the result is %+v", r)
		}
		for range 2 {
			if err := m.session.Ack("c1"); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, "heard of the result", m.hears(), "ack c1")
		if m.session.ResultOf("c1") != nil || len(m.session.HeldCalls()) != 0 {
			t.Error("an acknowledged call is held")
		}
		// A cache that lags has the call assigned again.
		m.mustAssign("c1")
		m.say(&wire.Message{Known: &wire.Known{CallUID: "c1"}})
		expect(t, "known", states(m.session.HeldCalls()), "c1 Known")
		expect(t, "news of it", o.news(), "call-c1")
		if err := m.session.Ack("c1"); err != nil || len(m.session.HeldCalls()) != 0 {
			t.Errorf("after that: %v, %v", err, m.session.HeldCalls())
		}
		expect(t, "heard", m.hears(), "assign c1")
	})
}

func TestWhatASessionsRunnerCannotTakeIsNotAssigned(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		for name, change := range map[string]func(*wire.Assignment){
			"a UID that isn't one":         func(a *wire.Assignment) { a.CallUID = "a b" },
			"no decision":                  func(a *wire.Assignment) { a.Decision = "" },
			"more than any call can have":  func(a *wire.Assignment) { a.Stdin = make([]byte, wire.MaxAssignment) },
			"a decision that isn't sealed": func(a *wire.Assignment) { a.Decision = "a\n" },
			"a decision that is too large": func(a *wire.Assignment) { a.Decision = string(make([]byte, wire.MaxDecision+1)) },
		} {
			a := assignmentOf("c1")
			change(a)
			if m.session.AssignTo("s1", a) == nil {
				t.Errorf("%s: assigned", name)
			}
		}
		if len(m.session.HeldCalls()) != 0 {
			t.Errorf("%v are held", m.session.HeldCalls())
		}
		m.mustAssign("c1")
		expect(t, "heard", m.hears(), "assign c1")
	})
}

// Rule 3: what was sent on an earlier connection and isn't in the hello was never handled.
func TestWhatAHelloDoesNotListIsAssignedAgain(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1", "c2", "c3")
		before, old := m.session, m.line
		m.connect(held("c1", wire.Running), held("c3", wire.Ended))
		expect(t, "held", states(m.session.HeldCalls()), "c1 Running, c3 Ended")
		expect(t, "news", fmt.Sprint(m.session.TakeNews()), "{true [] [call-c1 call-c2 call-c3]}")
		m.mustAssign("c1", "c2", "c3")
		expect(t, "heard", m.hears(), "assign c2")
		// The older connection is over, whatever comes of it.
		if !old.isOver() || o.hub.RunnerByKey(m.process.keyHash) != m.session {
			t.Error("the runner has two connections")
		}
		if err := before.AssignTo("s1", assignmentOf("c4")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("assigned on the older connection: %v", err)
		}
		for what, err := range map[string]error{
			"begun": before.Begin(theBegin()), "stopped": before.Stop("c9", "call-c9", result.CancelRequested), "ended": before.End("no"),
		} {
			if !errors.Is(err, net.ErrClosed) && what != "begun" || what == "begun" && err == nil {
				t.Errorf("%s on the older connection: %v", what, err)
			}
		}
		expect(t, "may have been started", accepted(t, o, m), "c1 Running, c3 Ended, c2 Assigned")
	})
}

// Rule 6: a call that the runner doesn't have never starts, and the runner says so.
func TestACallThatTheRunnerDoesNotHaveIsStoppedForGood(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		for range 3 {
			if err := m.session.Stop("c1", "call-c1", result.CancelRequested); err != nil {
				t.Fatal(err)
			}
		}
		m.mustAssign("c1")
		expect(t, "heard", m.hears(), "stop c1 CancelRequested")
		expect(t, "held", states(m.session.HeldCalls()), "c1 Withdrawn")
		expect(t, "may have been started", accepted(t, o, m), "")
		m.say(&wire.Message{Result: &wire.Result{CallUID: "c1", Outcome: result.Outcome{Reason: result.CancelRequested}}})
		expect(t, "news", o.news(), "call-c1")
		if r := m.session.ResultOf("c1"); r == nil || r.Outcome.Started {
			t.Errorf("the result is %+v", r)
		}
		// One that was acknowledged before is answered otherwise.
		if err := m.session.Stop("c2", "call-c2", result.CancelRequested); err != nil {
			t.Fatal(err)
		}
		m.say(&wire.Message{Known: &wire.Known{CallUID: "c2"}})
		expect(t, "news", o.news(), "call-c2")
		expect(t, "held", states(m.session.HeldCalls()), "c1 Ended, c2 Known")
	})
}

// Rule 7: also what is stopped, and what runs when the session ends, ends by its result.
func TestEveryEndComesFromAResult(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1", "c2")
		for range 2 {
			if err := m.session.Stop("c1", "call-c1", result.SessionEnded); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := m.session.End("MaxLifetime"); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, "heard", m.hears(), "assign c1, assign c2, stop c1 SessionEnded, end MaxLifetime")
		if err := m.assign("c3"); !errors.Is(err, dispatch.ErrEnding) {
			t.Errorf("assigned after the end: %v", err)
		}
		expect(t, "held before their results", states(m.session.HeldCalls()), "c1 Assigned, c2 Assigned")
		if m.session.Ack("c1") == nil {
			t.Error("a call without a result was acknowledged")
		}
		m.report("c1", "sealed-c1")
		m.report("c2", "sealed-c2")
		expect(t, "news", o.news(), "call-c1, call-c2")
		for _, uid := range []string{"c1", "c2"} {
			if m.session.ResultOf(uid) == nil || m.session.Ack(uid) != nil {
				t.Errorf("the result of %s isn't taken", uid)
			}
		}
		expect(t, "heard", m.hears(), "ack c1, ack c2")
	})
}

// Rule 7: a result that came counts, though its connection ended.
func TestResultsOfASessionOutliveTheirConnection(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1", "c2", "c3")
		m.report("c1", "sealed-c1")
		m.report("c2", "sealed-c2")
		o.news()
		m.Close()
		expect(t, "news of the loss", o.news(), "session, call-c1, call-c2, call-c3")
		key := m.process.keyHash
		if o.hub.Result(key, "c1") == nil || o.hub.Result(key, "c2") == nil || o.hub.Result(key, "c3") != nil {
			t.Error("the results that came aren't there")
		}
		expect(t, "may have been started", accepted(t, o, m), "c1 Ended, c2 Ended, c3 Assigned")
		// The runner comes back with one of them: the other was acknowledged.
		m.connect(held("c2", wire.Ended), held("c3", wire.Running))
		if o.hub.Result(key, "c1") != nil || o.hub.Result(key, "c2") == nil {
			t.Error("what the hello doesn't list is kept, or what it lists isn't")
		}
		m.report("c2", "sealed-c2")
		if r := o.hub.Result(key, "c2"); r == nil || r != m.session.ResultOf("c2") {
			t.Error("the result that came again doesn't count")
		}
		if err := m.session.Ack("c2"); err != nil || o.hub.Result(key, "c2") != nil {
			t.Errorf("it is kept after its acknowledgement: %v", err)
		}
	})
}

// Rule 8: the decision comes back, and nobody has to decide again.
func TestAHelloGivesTheDecisionsBack(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newMember(t, n, o)
		m.Close()
		o.news()
		m.connect(held("c1", wire.Running), held("c2", wire.Ended))
		got, serves := m.session.ToolSession()
		if !serves || got != theSession {
			t.Errorf("it serves %+v", got)
		}
		for _, uid := range []string{"c1", "c2"} {
			if call, ok := m.session.HeldCall(uid); !ok || call.Name != "call-"+uid || call.Decision != "sealed-"+uid {
				t.Errorf("held %+v", call)
			}
		}
		n2 := m.session.TakeNews()
		expect(t, "news of the connection", fmt.Sprint(n2), "{true [] [call-c1 call-c2]}")
		expect(t, "the same news", fmt.Sprint(m.session.TakeNews()), "{false [] []}")
	})
}

// Rule 12: the next call is assigned when a result comes, and at most eight results wait for their acknowledgement.
func TestTheNextCallDoesNotWaitForAnAcknowledgementUntilEightDo(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		uid := func(i int) string { return fmt.Sprint("c", i) }
		for i := range wire.MaxUnacknowledged {
			m.mustAssign(uid(i))
			m.report(uid(i), "sealed-"+uid(i))
		}
		if err := m.assign("next"); !errors.Is(err, dispatch.ErrNoRoom) {
			t.Errorf("a ninth: %v", err)
		}
		if _, held := m.session.HeldCall("next"); held {
			t.Error("what wasn't assigned is held")
		}
		for i := range wire.MaxUnacknowledged {
			if m.session.ResultOf(uid(i)) == nil {
				t.Errorf("the result of %s isn't there", uid(i))
			}
		}
		if err := m.session.Ack(uid(3)); err != nil {
			t.Fatal(err)
		}
		m.mustAssign("next")
	})
}

// Rule 12: a result that is recorded already is acknowledged when it comes, and nobody looks at it.
func TestAResultThatIsStillOnItsWayIsAcknowledgedWhenItArrives(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.connect(held("c1", wire.Ended))
		m.session.TakeNews()
		if err := m.session.Ack("c1"); err != nil {
			t.Fatal(err)
		}
		expect(t, "heard", m.hears(), "")
		m.report("c1", "sealed-c1")
		expect(t, "heard", m.hears(), "ack c1")
		expect(t, "news", o.news(), "")
		expect(t, "held", states(m.session.HeldCalls()), "")
	})
}

// Rule 10: nothing is stopped because the operator doesn't know it; who looked past the cache says so.
func TestOnlyTheCallThatIsGoneIsStopped(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		again := held("new", wire.Running)
		again.Name = "call-c1"
		m.connect(held("c1", wire.Running), again, held("c2", wire.Ended), held("c3", wire.Running))
		m.report("c2", "sealed-c2")
		expect(t, "heard", m.hears(), "")
		// A cache that is behind may have another UID.
		o.hub.Dismiss("ns", "call-c3", "old", "gone")
		expect(t, "heard", m.hears(), "")
		if !o.hub.HoldsOther("ns", "call-c1", "new") || o.hub.HoldsOther("ns", "call-c3", "c3") || !o.hub.HoldsOther("ns", "call-c3", "old") {
			t.Error("calls of another UID aren't found")
		}
		o.hub.DismissHeld("ns", "call-c1", "new")
		o.hub.Dismiss("ns", "call-c2", "", "gone")
		o.hub.Dismiss("ns", "call-c2", "", "gone")
		o.hub.Dismiss("ns2", "call-c3", "", "gone")
		o.hub.DismissHeld("ns", "call-c1", "new")
		expect(t, "heard", m.hears(), "stop c1 CancelRequested, ack c2")
		o.news()
		m.report("c1", "sealed-c1")
		expect(t, "heard of its result", m.hears(), "ack c1")
		// Its place is free for a call that waits, and no call is looked at that could say so.
		expect(t, "news", o.news(), "session")
		expect(t, "held", states(m.session.HeldCalls()), "new Running, c3 Running")
		m.Close()
		o.news()
		m.connect(held("c3", wire.Running))
		o.hub.DismissHeld("ns", "call-c3", "c3")
		expect(t, "heard of a call that is there", m.hears(), "")
	})
}
