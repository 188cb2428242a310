package dispatch_test

import (
	"fmt"
	"testing"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// accepted are the calls that the operator says the runner may have started.
func accepted(t *testing.T, o *operator, m *member) string {
	t.Helper()
	calls, known := o.hub.Accepted(m.process.keyHash)
	if !known {
		return "unknown"
	}
	return states(calls)
}

// What a runner had when it was lost is all that it can have started.
func TestWhatALostRunnerHadIsRemembered(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newMember(t, n, o)
		key := m.process.keyHash
		expect(t, "one that waits", accepted(t, o, m), "")
		m.disconnect()
		expect(t, "one that waited", accepted(t, o, m), "unknown")
		m.dial(nil)
		m.session = o.event(t)
		m.begin()
		m.mustAssign("c1", "c2")
		m.disconnect()
		expect(t, "a lost one", accepted(t, o, m), "c1 Assigned, c2 Assigned")
		m.connect(held("c2", wire.Running))
		expect(t, "its hello", accepted(t, o, m), "c2 Running")
		expect(t, "its news", fmt.Sprint(inOrder(o.last)), "[owner call-c1 call-c2]")
		m.disconnect()
		expect(t, "lost again", accepted(t, o, m), "c2 Running")
		o.hub.Forget(key)
		expect(t, "forgotten", accepted(t, o, m), "unknown")
		m.connect(held("c2", wire.Running))
		m.disconnect()
		o.hub.DismissSession("ns", "session", "s1", "gone")
		o.hub.DismissSession("ns", "other", "", "gone")
		expect(t, "its session is there", accepted(t, o, m), "c2 Running")
		o.hub.DismissSession("ns", "session", "s2", "gone")
		expect(t, "its session is gone", accepted(t, o, m), "unknown")
	})
}

// That of a call is remembered until somebody has recorded how the call ended.
func TestWhatALostRunnerOfACallHadIsRememberedUntilItsEndIsRecorded(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newMember(t, n, o)
		m.owner = callC1
		m.begin()
		m.mustAssign("c1")
		expect(t, "while it is connected", accepted(t, o, m), "c1 Assigned")
		m.disconnect()
		expect(t, "a lost one", accepted(t, o, m), "c1 Assigned")
		m.connect()
		expect(t, "its hello", accepted(t, o, m), "")
		if m.session.Taken() != 0 {
			t.Errorf("it has taken %d", m.session.Taken())
		}
		m.mustAssign("c1")
		expect(t, "heard", m.hears(), "assign c1")
		m.disconnect()
		o.hub.Release(m.process.keyHash, "another")
		expect(t, "lost again", accepted(t, o, m), "c1 Assigned")
		o.hub.Release(m.process.keyHash, "c1")
		expect(t, "its end is recorded", accepted(t, o, m), "unknown")
		m.connect(held("c1", wire.Running))
		m.session.Refuse("the call has ended")
		expect(t, "heard", m.hears(), "refuse for good")
		expect(t, "refused", accepted(t, o, m), "unknown")
		m.connect()
		m.disconnect()
		expect(t, "one that was given nothing", accepted(t, o, m), "unknown")
	})
}
