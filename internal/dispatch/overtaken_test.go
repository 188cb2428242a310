package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// recordedFor is a process that an owner records, everywhere.
func recordedFor(t *testing.T, n *network, o *operator, owner wire.Owner, everywhere ...*objects) *member {
	t.Helper()
	m := absent(t, n, o)
	m.owner = owner
	for _, has := range everywhere {
		has.addJob("job")
		has.record(owner, m.process.keyHash)
	}
	return m
}

// slowly has a process say hello, for the owner, to an operator that looks its owner up for two seconds. The process gives the
// connection up meanwhile.
func slowly(t *testing.T, m *member, cached, live *objects) {
	t.Helper()
	cached.addJob("job")
	live.change(func() { live.hangs = true })
	m.dialServing()
	synctest.Wait()
	if m.o.hub.Len() != 0 {
		t.Fatal("it is served already")
	}
	m.NetConn().Close()
	cached.record(m.owner, m.process.keyHash)
}

// The last hello is the whole truth, also where the operator took longer over the one before.
func TestAHelloThatIsOvertakenByTheNextOneCountsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := absent(t, n, o)
		slowly(t, m, cached, live)
		m.connect()
		keepPinging(t, m.peer)
		m.mustAssign("c1")
		expect(t, "heard", m.hears(), "assign c1")
		time.Sleep(3 * time.Second)
		if m.isOver() {
			t.Error("the connection on which a call was handed over is over")
		}
		expect(t, "what the runner may have started", accepted(t, o, m), "c1 Assigned")
		m.Close()
	})
}

// It doesn't either when the next one has ended by then: of a call, nothing else says that it was started.
func TestAHelloThatIsOvertakenCountsForNothingAfterTheNextOnesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := absent(t, n, o)
		m.owner = callC1
		slowly(t, m, cached, live)
		m.connect()
		m.mustAssign("c1")
		m.disconnect()
		time.Sleep(3 * time.Second)
		if r := o.hub.RunnerByKey(m.process.keyHash); r != nil {
			t.Errorf("it is served, with %d calls taken", r.Taken())
		}
		m.connect(held("c1", wire.Running))
		m.Close()
	})
}

// A runner that announces a call and never names it is in no list that the sweep looks at.
func TestARunnerThatDoesntListItsCallsIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := recordedFor(t, n, o, callC1, cached, live)
		m.dial(&wire.Serving{Owner: m.owner, Taken: 1, Held: 1})
		keepPinging(t, m.peer)
		time.Sleep(5 * time.Minute)
		if !m.isOver() {
			t.Error("its connection is there")
		}
	})
}

// What is true on the old connection says nothing of the new one.
func TestAConnectionThatWasReplacedIsNotPaused(t *testing.T) {
	t.Parallel()
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := absent(t, n, o)
		m.connect()
		old := m.session
		m.connect()
		m.mustAssign("c1")
		if old.Pause() {
			t.Error("nothing runs, it says")
		}
	})
}

// Whoever has the token alone can't keep the runner out whose key an object records.
func TestARecordedRunnerTakesThePlaceOfOneThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := recordedFor(t, n, o, callC1, cached, live)
		thief := absent(t, n, o)
		thief.dial(nil)
		thief.session = o.event(t)
		m.connect(held("c1", wire.Ended))
		if !thief.isOver() || o.hub.RunnerByKey(m.process.keyHash) == nil {
			t.Errorf("the other is gone: %t; it is known: %t", thief.isOver(), o.hub.RunnerByKey(m.process.keyHash) != nil)
		}
		again := absent(t, n, o)
		again.dial(nil)
		synctest.Wait()
		if !again.isOver() || m.isOver() {
			t.Error("one that waits takes the place of a recorded one")
		}
		thief.Close()
		again.Close()
	})
}

// A runner pings while its result waits for room. All that comes at once then.
func TestPingsThatWaitedAreNoFlood(t *testing.T) {
	t.Parallel()
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newMember(t, n, o)
		m.begin()
		for range 300 {
			_ = m.write(`{"ping":{}}`)
		}
		synctest.Wait()
		if m.isOver() {
			t.Error("it is cut off")
		}
	})
}
