package dispatch_test

import (
	"testing"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// madeFor is a runner that waits, in a pod that was made for a call.
func madeFor(t *testing.T, n *network, o *operator, job, call string) *member {
	t.Helper()
	m := absent(t, n, o)
	m.job, m.madeFor = job, call
	m.dial(nil)
	m.session = o.event(t)
	return m
}

func TestAWaitingRunnerIsRefusedOnlyWhenNoCallOfItsNameIsLeft(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		gone, other, pool := madeFor(t, n, o, "gone", "call-c1"), madeFor(t, n, o, "other", "call-c2"), madeFor(t, n, o, "pool", "")
		if o.hub.HoldsOther("ns", "call-c1", "c1") {
			t.Error("a runner that waits has a call")
		}
		o.hub.Dismiss("ns", "call-c1", "c1", "replaced")
		o.hub.Dismiss("ns2", "call-c1", "", "gone")
		for name, m := range map[string]*member{"there is a call": gone, "another call": other, "none": pool} {
			expect(t, name, m.hears(), "")
		}
		o.hub.Dismiss("ns", "call-c1", "", "gone")
		expect(t, "the call is gone", gone.hears(), "refuse for good")
		expect(t, "another call", other.hears(), "")
		expect(t, "none", pool.hears(), "")
		if !gone.isOver() || other.isOver() || pool.isOver() || o.hub.Len() != 2 {
			t.Errorf("%d are connected", o.hub.Len())
		}
	})
}

// One of a pool was made for no call: it is found by the call that it began for.
func TestARunnerOfACallThatIsGoneIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		except  string
		refused bool
	}{"there is none of the name": {"", true}, "there is another of the name": {"c2", true}, "it is there": {"c1", false}} {
		for _, call := range []string{"", "call-c1"} {
			for _, isAssigned := range []bool{false, true} {
				inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
					m := madeFor(t, n, o, "job", call)
					m.owner = callC1
					m.begin()
					if isAssigned {
						m.mustAssign("c1")
						m.report("c1", "sealed-c1")
						expect(t, name, m.hears(), "assign c1")
					}
					if !o.hub.HoldsOther("ns", "call-c1", "c2") || o.hub.HoldsOther("ns", "call-c1", "c1") || o.hub.HoldsOther("ns", "call-c2", "c2") {
						t.Errorf("%s: calls of another UID aren't told from this one", name)
					}
					o.hub.Dismiss("ns", "call-c2", "", "gone")
					expect(t, name+", heard of another's end", m.hears(), "")
					o.hub.Dismiss("ns", "call-c1", c.except, "gone")
					want := ""
					if c.refused {
						want = "refuse for good"
					}
					expect(t, name, m.hears(), want)
					hasResult := o.hub.Result(m.process.keyHash, "c1") != nil
					if m.isOver() != c.refused || hasResult != (isAssigned && !c.refused) {
						t.Errorf("%s: the connection has ended: %t; there is a result: %t", name, m.isOver(), hasResult)
					}
				})
			}
		}
	}
}

// Rule 10: nothing is stopped because the operator doesn't know it; who looked past the cache says so.
func TestASessionsRunnerStopsOnlyTheCallThatIsGone(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		again := held("new", wire.Running)
		again.Name = "call-c1"
		m.connect(held("c1", wire.Running), again, held("c2", wire.Ended), held("c3", wire.Running))
		m.report("c2", "sealed-c2")
		expect(t, "heard", m.hears(), "")
		if !o.hub.HoldsOther("ns", "call-c1", "new") || o.hub.HoldsOther("ns", "call-c3", "c3") || !o.hub.HoldsOther("ns", "call-c3", "old") {
			t.Error("calls of another UID aren't found")
		}
		o.news()
		o.hub.Dismiss("ns", "call-c1", "new", "gone")
		o.hub.Dismiss("ns", "call-c2", "", "gone")
		o.hub.Dismiss("ns", "call-c2", "", "gone")
		o.hub.Dismiss("ns2", "call-c3", "", "gone")
		o.hub.Dismiss("ns", "call-c1", "new", "gone")
		expect(t, "heard", m.hears(), "stop c1 CancelRequested, ack c2")
		expect(t, "news of the room that a result took", o.news(), "owner")
		m.report("c1", "sealed-c1")
		expect(t, "heard of its result", m.hears(), "ack c1")
		// Its place is free for a call that waits, and no call is looked at that could say so.
		expect(t, "news", o.news(), "owner")
		expect(t, "held", states(m.session.HeldCalls()), "new Running, c3 Running")
		m.Close()
		o.news()
		m.connect(held("c3", wire.Running))
		o.hub.Dismiss("ns", "call-c3", "c3", "gone")
		expect(t, "heard of a call that is there", m.hears(), "")
	})
}

func TestDismissedResultsThatWereLeftAreForgotten(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1", "c2")
		m.report("c1", "sealed-c1")
		m.report("c2", "sealed-c2")
		m.disconnect()
		key := m.process.keyHash
		o.hub.Dismiss("ns", "call-c1", "", "gone")
		o.hub.Dismiss("ns", "call-c2", "c2", "gone")
		if o.hub.Result(key, "c1") != nil || o.hub.Result(key, "c2") == nil || o.hub.HoldsOther("ns", "call-c2", "c2") || !o.hub.HoldsOther("ns", "call-c2", "new") {
			t.Error("the wrong result is kept")
		}
		o.hub.Dismiss("ns", "call-c2", "new", "gone")
		if o.hub.Result(key, "c2") != nil || o.hub.HoldsOther("ns", "call-c2", "new") {
			t.Error("a result of a call that is gone is kept")
		}
	})
}

func TestTheRunnerOfASessionThatIsGoneEnds(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1")
		m.report("c1", "sealed-c1")
		o.hub.DismissSession("ns", "session", "s1", "gone")
		expect(t, "heard of another's end", m.hears(), "assign c1")
		o.hub.DismissSession("ns", "session", "", "gone")
		expect(t, "heard", m.hears(), "refuse for good")
		if !m.isOver() || o.hub.RunnerByKey(m.process.keyHash) != nil || o.hub.Result(m.process.keyHash, "c1") != nil {
			t.Error("its connection goes on, or its result is kept")
		}
	})
}
