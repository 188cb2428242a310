package dispatch_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// serveWith records the runner of session "s1".
func (o *objects) serveWith(keyHash string) {
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "session", UID: "s1"}}
	session.Status.Runner = &v1alpha1.RunnerBinding{KeyHash: keyHash}
	o.change(func() { o.sessions["ns/session"] = session })
}

func TestOnlyTheRecordedRunnerSpeaksForASession(t *testing.T) {
	for name, c := range map[string]struct {
		record  func(o *objects, key string)
		refused bool
	}{
		"its own": {func(o *objects, key string) { o.serveWith(key) }, false},
		"its own, ended": {func(o *objects, key string) {
			o.serveWith(key)
			o.sessions["ns/session"].Status.Phase = v1alpha1.SessionEnded
		}, false},
		"another runner's": {func(o *objects, _ string) { o.serveWith("another key") }, true},
		"nobody's":         {func(o *objects, key string) { o.serveWith(key); o.sessions["ns/session"].Status.Runner = nil }, true},
		"one made anew":    {func(o *objects, key string) { o.serveWith(key); o.sessions["ns/session"].UID = "s2" }, true},
		"one that is gone": {func(*objects, string) {}, true},
		"one elsewhere": {func(o *objects, key string) {
			o.serveWith(key)
			o.sessions = map[string]*v1alpha1.ToolSession{"ns2/session": o.sessions["ns/session"]}
		}, true},
		"a call of its name": {func(o *objects, key string) { o.bind(key); o.calls["ns/session"] = o.calls["ns/call"] }, true},
	} {
		for _, inCache := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				n, o, cached, live := recordedBubble(t, dispatch.Limits{})
				m := &member{t: t, n: n, o: o, process: newProcess(t), job: "job"}
				c.record(live, m.process.keyHash)
				if inCache {
					c.record(cached, m.process.keyHash)
				}
				// There is a Job: that makes no difference.
				live.addJob("job")
				if !c.refused {
					m.connect()
					if got, _ := m.session.ToolSession(); got != theSession {
						t.Errorf("%s: it serves %+v", name, got)
					}
					return
				}
				m.dialServing()
				expect(t, name, m.hears(), "end SessionEnded, refuse")
				if !m.isOver() || o.hub.Len() != 0 || len(o.events) != 0 {
					t.Errorf("%s: it is served", name)
				}
			})
		}
	}
}

// A session's runner must not lose its calls to an outage.
func TestAnAPIServerThatDoesNotAnswerEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, _, live := recordedBubble(t, dispatch.Limits{})
		live.change(func() { live.fails = errors.New("down") })
		m := &member{t: t, n: n, o: o, process: newProcess(t), job: "job"}
		m.connect(held("c1", wire.Running))
		keepPinging(t, m.peer)
		time.Sleep(3 * dispatch.SweepInterval)
		if m.isOver() || o.hub.RunnerByKey(m.process.keyHash) != m.session {
			t.Fatal("it was turned away in the outage")
		}
		live.change(func() { live.fails = nil })
		time.Sleep(dispatch.SweepInterval)
		expect(t, "heard", m.hears(), "end SessionEnded, refuse")
		if !m.isOver() {
			t.Error("a runner that no session records stays")
		}
	})
}

func TestTheSweepEndsTheRunnersOfSessionsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := &member{t: t, n: n, o: o, process: newProcess(t), job: "job"}
		for _, has := range []*objects{cached, live} {
			has.addJob("job")
			has.serveWith(m.process.keyHash)
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
		expect(t, "news of what the cache lacks", o.news(), "session, call-c1, call-c2")
		m.hears()
		live.change(func() { live.sessions["ns/session"].Status.Runner.KeyHash = "another" })
		time.Sleep(dispatch.SweepInterval)
		expect(t, "heard", m.hears(), "end SessionEnded, refuse")
		if !m.isOver() || o.hub.Len() != 0 {
			t.Error("its connection goes on")
		}
	})
}

func TestTheSweepForgetsRunnersThatAreNoLongerTheirSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		m := &member{t: t, n: n, o: o, process: newProcess(t), job: "job"}
		live.serveWith(m.process.keyHash)
		m.connect(held("c1", wire.Running))
		m.report("c1", "sealed-c1")
		m.disconnect()
		time.Sleep(2 * dispatch.SweepInterval)
		expect(t, "while it is recorded", accepted(t, o, m), "c1 Ended")
		cached.serveWith("another key")
		live.change(func() { live.fails = errors.New("down") })
		time.Sleep(2 * dispatch.SweepInterval)
		expect(t, "while nobody knows", accepted(t, o, m), "c1 Ended")
		live.change(func() { live.fails = nil })
		live.serveWith("another key")
		time.Sleep(2 * dispatch.SweepInterval)
		expect(t, "replaced", accepted(t, o, m), "unknown")
		if o.hub.Result(m.process.keyHash, "c1") != nil {
			t.Error("its result is kept")
		}
	})
}
