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

func TestARunnerThatWaitsBecomesThatOfItsOwnerForGood(t *testing.T) {
	for name, owner := range map[string]wire.Owner{"a call": callC1, "a session": theSession} {
		inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
			m := newMember(t, n, o)
			m.owner = owner
			if got, hasBegun := m.session.Owner(); hasBegun || !m.session.IsWaiting() || m.session.Taken() != 0 {
				t.Errorf("%s: a runner that waits is that of %+v", name, got)
			}
			if m.assign("c1") == nil || m.session.Stop("c1", result.CancelRequested) == nil || m.session.End("no") == nil {
				t.Errorf("%s: a runner that hasn't begun is given work", name)
			}
			wrong := beginOf(owner)
			wrong.MaxCalls = 0
			if m.session.Begin(wrong) == nil || !m.session.IsWaiting() {
				t.Errorf("%s: it begins without calls", name)
			}
			for range 3 {
				if err := m.session.Begin(beginOf(owner)); err != nil {
					t.Fatal(err)
				}
			}
			if got, hasBegun := m.session.Owner(); !hasBegun || got != owner || m.session.IsWaiting() {
				t.Errorf("%s: it is the runner of %+v", name, got)
			}
			if m.session.Assign("another", assignmentOf("c1")) == nil {
				t.Errorf("%s: it takes a call of another owner", name)
			}
			expect(t, name+", heard", m.hears(), "begin")
		})
	}
}

// One process takes one call, and never starts another.
func TestTheRunnerOfACallIsGivenNoOther(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newMember(t, n, o)
		m.owner = callC1
		m.begin()
		if m.assign("c2") == nil || m.session.Stop("c2", result.CancelRequested) == nil {
			t.Error("it is told of another call")
		}
		m.mustAssign("c1")
		if m.assign("c2") == nil {
			t.Error("it is given another call")
		}
		expect(t, "heard", m.hears(), "assign c1")
		expect(t, "held", states(m.session.HeldCalls()), "c1 Assigned")
		if m.session.Taken() != 1 {
			t.Errorf("it has taken %d", m.session.Taken())
		}
	})
}

// What was decided about a call is in its pod's Job already; of a session's call, the process has to give it back.
func TestOnlyASessionsCallNeedsItsDecision(t *testing.T) {
	forEachOwner(t, func(t *testing.T, _ *operator, m *member) {
		a := assignmentOf("c1")
		a.Decision = ""
		if err := m.session.Assign(m.owner.UID, a); (err == nil) != m.owner.IsCall() {
			t.Errorf("got %v", err)
		}
	})
}

// Rule 5: an assignment can be repeated, and each answer counts.
func TestAnAssignmentIsSentOnceAConnectionAndItsAnswersAreTaken(t *testing.T) {
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.mustAssign("c1", "c1", "c1")
		expect(t, "heard", m.hears(), "assign c1")
		expect(t, "assigned", states(m.session.HeldCalls()), "c1 Assigned")
		if call, ok := m.session.HeldCall("c1"); !ok || call.Decision != "sealed-c1" {
			t.Errorf("assigned: %+v", call)
		}
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
			if m.session.Assign("s1", a) == nil {
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
		expect(t, "news", fmt.Sprint(inOrder(o.last)), "[owner call-c1 call-c2 call-c3]")
		m.mustAssign("c1", "c2", "c3")
		expect(t, "heard", m.hears(), "assign c2")
		// The older connection is over, whatever comes of it.
		if !old.isOver() || o.hub.RunnerByKey(m.process.keyHash) != m.session {
			t.Error("the runner has two connections")
		}
		if err := before.Assign("s1", assignmentOf("c4")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("assigned on the older connection: %v", err)
		}
		for what, err := range map[string]error{
			"begun": before.Begin(theBegin()), "stopped": before.Stop("c9", result.CancelRequested), "ended": before.End("no"),
		} {
			if !errors.Is(err, net.ErrClosed) && what != "begun" || what == "begun" && err == nil {
				t.Errorf("%s on the older connection: %v", what, err)
			}
		}
		expect(t, "may have been started", accepted(t, o, m), "c1 Running, c3 Ended, c2 Assigned")
	})
}

// What the runner doesn't have was never handed over, or its result is recorded.
func TestOnlyACallThatTheRunnerHasIsStopped(t *testing.T) {
	forEachOwner(t, func(t *testing.T, _ *operator, m *member) {
		if m.session.Stop("c1", result.CancelRequested) == nil {
			t.Error("a call is stopped that wasn't assigned")
		}
		m.mustAssign("c1")
		m.say(&wire.Message{Known: &wire.Known{CallUID: "c1"}})
		if err := m.session.Stop("c1", result.CancelRequested); err != nil {
			t.Fatal(err)
		}
		expect(t, "heard", m.hears(), "assign c1")
	})
}

// A call that runs is stopped by its runner, once a connection.
func TestAStopIsSentOnceAConnection(t *testing.T) {
	forEachOwner(t, func(t *testing.T, _ *operator, m *member) {
		m.mustAssign("c1")
		stop := func() {
			for range 3 {
				if err := m.session.Stop("c1", result.CancelRequested); err != nil {
					t.Fatal(err)
				}
			}
		}
		stop()
		expect(t, "heard", m.hears(), "assign c1, stop c1 CancelRequested")
		expect(t, "held", states(m.session.HeldCalls()), "c1 Assigned")
		m.connect(held("c1", wire.Running))
		stop()
		expect(t, "heard on the next connection", m.hears(), "stop c1 CancelRequested")
		m.report("c1", "sealed-c1")
		stop()
		expect(t, "heard of a call that has ended", m.hears(), "")
		if r := m.session.ResultOf("c1"); r == nil {
			t.Error("its result isn't taken")
		}
	})
}

// Its result is recorded, and its output isn't stored: the runner stays, and takes no memory for the result.
func TestARunnerWhoseResultIsRecordedStaysUntilItIsAcknowledged(t *testing.T) {
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.mustAssign("c1")
		m.report("c1", "sealed-c1")
		expect(t, "heard", m.hears(), "assign c1")
		for range 2 {
			m.session.Record("c1")
		}
		m.session.Record("another")
		call, isHeld := m.session.HeldCall("c1")
		if !isHeld || !call.IsRecorded || !call.HasEnded() || call.Decision != "" || m.session.ResultOf("c1") != nil || o.hub.Result(m.process.keyHash, "c1") != nil {
			t.Errorf("held %t: %+v, with result %v", isHeld, call, m.session.ResultOf("c1"))
		}
		m.mustAssign("c1")
		expect(t, "heard", m.hears(), "")
		if m.isOver() {
			t.Fatal("the connection has ended")
		}
		for range 2 {
			if err := m.session.Ack("c1"); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, "heard of the acknowledgement", m.hears(), "ack c1")
		expect(t, "held", states(m.session.HeldCalls()), "")
		m.disconnect()
		if o.hub.Result(m.process.keyHash, "c1") != nil {
			t.Error("the result is kept")
		}
	})
}

// Somebody else ended the call: it is recorded while it runs, and isn't acknowledged before its result.
func TestACallThatRunsIsRecordedAndNotAcknowledged(t *testing.T) {
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.mustAssign("c1")
		m.session.Record("c1")
		if call, _ := m.session.HeldCall("c1"); !call.IsRecorded || call.HasEnded() || m.session.Ack("c1") == nil {
			t.Errorf("it is acknowledged: %+v", call)
		}
		o.news()
		m.report("c1", "sealed-c1")
		expect(t, "news", o.news(), "")
		expect(t, "held", states(m.session.HeldCalls()), "c1 Ended")
		if err := m.session.Ack("c1"); err != nil {
			t.Fatal(err)
		}
		expect(t, "heard", m.hears(), "assign c1, ack c1")
	})
}

// Rule 7: also what is stopped, and what runs when the session ends, ends by its result.
func TestEveryEndComesFromAResult(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1", "c2")
		for range 2 {
			if err := m.session.Stop("c1", result.SessionEnded); err != nil {
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
		expect(t, "news of the loss", o.news(), "owner, call-c1, call-c2, call-c3")
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

// What the hello doesn't list was acknowledged, or is nothing that the runner stands by.
func TestAResultThatAHelloDoesNotListIsForgotten(t *testing.T) {
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.mustAssign("c1")
		m.report("c1", "sealed-c1")
		m.disconnect()
		if o.hub.Result(m.process.keyHash, "c1") == nil {
			t.Error("it went with its connection")
		}
		m.connect()
		if o.hub.Result(m.process.keyHash, "c1") != nil {
			t.Error("it is kept")
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
		if got, hasBegun := m.session.Owner(); !hasBegun || got != theSession {
			t.Errorf("it is the runner of %+v", got)
		}
		for _, uid := range []string{"c1", "c2"} {
			if call, ok := m.session.HeldCall(uid); !ok || call.Name != "call-"+uid || call.Decision != "sealed-"+uid {
				t.Errorf("held %+v", call)
			}
		}
		expect(t, "news of the connection", fmt.Sprint(inOrder(o.last)), "[owner call-c1 call-c2]")
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
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.connect(held("c1", wire.Ended))
		if err := m.session.Ack("c1"); err != nil {
			t.Fatal(err)
		}
		expect(t, "heard", m.hears(), "")
		m.report("c1", "sealed-c1")
		expect(t, "heard", m.hears(), "ack c1")
		// A call may wait for the room that it took.
		expect(t, "news", o.news(), "owner")
		expect(t, "held", states(m.session.HeldCalls()), "")
	})
}
