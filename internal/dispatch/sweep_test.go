package dispatch_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

func TestTheSweepEndsTheRunnersOfSessionsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := absent(t, n, o)
		for _, has := range []*objects{cached, live} {
			has.addJob("job")
			has.record(theSession, m.process.keyHash)
		}
		m.dial(nil)
		m.session = o.event(t)
		m.begin()
		keepPinging(t, m.peer)
		// The Job says nothing about a runner that serves a session.
		for _, has := range []*objects{cached, live} {
			has.change(func() { delete(has.jobs, "ns/job") })
		}
		m.mustAssign("c1", "c2")
		o.news()
		time.Sleep(dispatch.SweepInterval + time.Second)
		expect(t, "news of a sweep that finds all as it was", o.news(), "")
		m.report("c1", "sealed-c1")
		expect(t, "news", o.news(), "call-c1")
		time.Sleep(dispatch.SweepInterval)
		expect(t, "news of a result that nobody took", o.news(), "call-c1")
		cached.change(func() { delete(cached.sessions, "ns/session") })
		time.Sleep(dispatch.SweepInterval)
		expect(t, "news of what the cache lacks", o.news(), "owner, call-c1, call-c2")
		m.hears()
		live.change(func() { live.sessions["ns/session"].Status.Runner.KeyHash = "another" })
		time.Sleep(dispatch.SweepInterval)
		expect(t, "heard", m.hears(), "refuse for good")
		if !m.isOver() || o.hub.Len() != 0 {
			t.Error("its connection goes on")
		}
	})
}

func TestTheSweepForgetsRunnersThatAreNoLongerTheirSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := absent(t, n, o)
		live.record(theSession, m.process.keyHash)
		m.connect(held("c1", wire.Running))
		m.report("c1", "sealed-c1")
		m.disconnect()
		time.Sleep(2 * dispatch.SweepInterval)
		expect(t, "while it is recorded", accepted(t, o, m), "c1 Ended")
		cached.record(theSession, "another key")
		live.change(func() { live.fails = errors.New("down") })
		time.Sleep(2 * dispatch.SweepInterval)
		expect(t, "while nobody knows", accepted(t, o, m), "c1 Ended")
		live.change(func() { live.fails = nil })
		live.record(theSession, "another key")
		time.Sleep(2 * dispatch.SweepInterval)
		expect(t, "replaced", accepted(t, o, m), "unknown")
		if o.hub.Result(m.process.keyHash, "c1") != nil {
			t.Error("its result is kept")
		}
	})
}

// A reconciler that was busy when a result came is reminded of it, whatever the runner was begun for.
func TestTheSweepRemindsOfResultsThatNobodyTook(t *testing.T) {
	for what, owner := range map[string]wire.Owner{"a call": callC1, "a session": theSession} {
		synctest.Test(t, func(t *testing.T) {
			n, o, cached, live := recordedBubble(t, dispatch.Limits{})
			m := recordedFor(t, n, o, owner, cached, live)
			m.connect(held("c1", wire.Running))
			keepPinging(t, m.peer)
			time.Sleep(dispatch.SweepInterval + time.Second)
			expect(t, what+", news of a call that runs", o.news(), "")
			m.report("c1", "sealed-c1")
			expect(t, what+", news", o.news(), "call-c1")
			time.Sleep(dispatch.SweepInterval)
			expect(t, what+", news of a result that nobody took", o.news(), "call-c1")
			if err := m.session.Ack("c1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(dispatch.SweepInterval)
			expect(t, what+", heard", m.hears(), "ack c1")
			// A runner of a call exits.
			if m.isOver() != owner.IsCall() {
				t.Errorf("%s: the connection has ended: %t", what, m.isOver())
			}
		})
	}
}
