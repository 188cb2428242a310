package dispatch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// Rule 4: what a hello says of what was begun is checked before anything is kept.
func TestAHelloOfAnOwnerThatIsNotValidIsRefusedForGood(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		for name, c := range map[string]struct {
			change func(*wire.Serving)
			of     []wire.Owner
		}{
			"no UID":                           {func(s *wire.Serving) { s.UID = "" }, nil},
			"a UID that isn't one":             {func(s *wire.Serving) { s.UID = "a b" }, nil},
			"a UID with a quote":               {func(s *wire.Serving) { s.UID = `c"1` }, nil},
			"a UID with a slash":               {func(s *wire.Serving) { s.UID = "a/b" }, nil},
			"a long UID":                       {func(s *wire.Serving) { s.UID = longUID + "f" }, nil},
			"no name":                          {func(s *wire.Serving) { s.Name = "" }, nil},
			"a name with a slash":              {func(s *wire.Serving) { s.Name = "x/1" }, nil},
			"a name of two dots":               {func(s *wire.Serving) { s.Name = ".." }, nil},
			"a long name":                      {func(s *wire.Serving) { s.Name = longName + "a" }, nil},
			"no kind":                          {func(s *wire.Serving) { s.Kind = "" }, nil},
			"another kind":                     {func(s *wire.Serving) { s.Kind = "Pod" }, nil},
			"fewer than no calls":              {func(s *wire.Serving) { s.Held = -1 }, nil},
			"too many calls":                   {func(s *wire.Serving) { s.Held = wire.MaxHeldCalls + 1 }, nil},
			"less taken than none":             {func(s *wire.Serving) { s.Taken = -1 }, nil},
			"a session without an incarnation": {func(s *wire.Serving) { s.Incarnation = 0 }, []wire.Owner{theSession}},
			"a session of none":                {func(s *wire.Serving) { s.Incarnation = -1 }, []wire.Owner{theSession}},
			"a call's incarnation":             {func(s *wire.Serving) { s.Incarnation = 1 }, []wire.Owner{theCall}},
			"a call that holds more than one":  {func(s *wire.Serving) { s.Held = 2 }, []wire.Owner{theCall}},
			"a session that says it is a call": {func(s *wire.Serving) { s.Kind = wire.KindCall }, []wire.Owner{theSession}},
			"a call that says it is a session": {func(s *wire.Serving) { s.Kind = wire.KindSession }, []wire.Owner{theCall}},
		} {
			if c.of == nil {
				c.of = []wire.Owner{theCall, theSession}
			}
			for _, owner := range c.of {
				l := &line{peer: n.peer(t)}
				go l.read()
				serving := &wire.Serving{Owner: owner}
				c.change(serving)
				l.send(changedHello(t, o, func(h *wire.Hello) { h.Serving = serving }))
				if got := l.hears(); got != "refuse for good" || !l.isOver() || len(o.events) != 0 || o.hub.Len() != 0 {
					t.Errorf("%s of %s: heard %q, and %d are connected", name, owner.Kind, got, o.hub.Len())
				}
			}
		}
	})
}

func TestWhatFollowsAHelloIsChecked(t *testing.T) {
	for name, follow := range map[string]string{
		"a UID that isn't one":   `{"held":{"uid":"a b","name":"call","state":"Running"}}`,
		"no UID":                 `{"held":{"name":"call","state":"Running"}}`,
		"a name that isn't one":  `{"held":{"uid":"c1","name":"../x","state":"Running"}}`,
		"no name":                `{"held":{"uid":"c1","state":"Running"}}`,
		"a state that isn't one": `{"held":{"uid":"c1","name":"call","state":"Known"}}`,
		"a call twice":           `{"held":{"uid":"c0","name":"call","state":"Running"}}`,
		"a result before all":    resultOf("c0"),
		"a large result":         largeResultOf("c0", 10<<10),
		"junk":                   `junk`,
		"nothing of its kind":    `{"started":{"callUID":"c0"}}`,
	} {
		inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
			m := absent(t, n, o)
			m.dial(&wire.Serving{Owner: theSession, Held: 2})
			m.send(`{"held":{"uid":"c0","name":"call","state":"Running"}}`)
			_ = m.write(follow)
			if !m.isOver() || len(o.events) != 0 || o.hub.Len() != 0 {
				t.Errorf("%s: it is served", name)
			}
		})
		if name == "a call twice" {
			continue
		}
		inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
			m := absent(t, n, o)
			m.dial(&wire.Serving{Owner: theCall, Held: 1})
			_ = m.write(follow)
			if !m.isOver() || len(o.events) != 0 || o.hub.Len() != 0 {
				t.Errorf("%s, of a call: it is served", name)
			}
		})
	}
}

func TestTheRunnerOfACallHoldsNoOther(t *testing.T) {
	for uid, served := range map[string]bool{"c1": true, "c2": false, "C1": false} {
		inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
			m := absent(t, n, o)
			m.owner = callC1
			m.dialServing(wire.Held{UID: uid, Name: "call-c1", State: wire.Running})
			if m.isOver() == served || (o.hub.Len() == 1) != served {
				t.Errorf("%s: its connection has ended: %t", uid, m.isOver())
			}
		})
	}
}

func TestARunnerCountsOnceAllItsCallsHaveCome(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := absent(t, n, o)
		m.dial(&wire.Serving{Owner: theSession, Held: wire.MaxHeldCalls})
		for i := range wire.MaxHeldCalls {
			if o.hub.Len() != 0 {
				t.Fatalf("it is served after %d calls", i)
			}
			// It pings between, and the frames are as large as they can be.
			call := held(fmt.Sprint("c", i), wire.Running)
			call.Decision = strings.Repeat("d", wire.MaxDecision)
			m.say(&wire.Message{Held: &call})
			time.Sleep(time.Second)
			m.say(&wire.Message{Ping: &wire.Ping{}})
		}
		s := o.event(t)
		if got := len(s.HeldCalls()); got != wire.MaxHeldCalls {
			t.Errorf("%d calls are held", got)
		}
	})
}

// A frame of a hello that doesn't arrive takes nothing from others for long.
func TestAHeldCallThatDoesNotArriveIsGivenUp(t *testing.T) {
	inBubble(t, dispatch.Limits{ResultBytes: 100 << 10, BytesPerNamespace: 100 << 10}, func(t *testing.T, n *network, o *operator) {
		m := absent(t, n, o)
		m.dial(&wire.Serving{Owner: theSession, Held: 1})
		m.announce(100 << 10)
		synctest.Wait()
		began := time.Now()
		go reporter(t, n, o, "quick", 100<<10).awaitEnd()
		if s := o.event(t); s.ResultOf("c1") == nil || time.Since(began) != dispatch.ResultGrace {
			t.Errorf("another's result came after %s", time.Since(began))
		}
		if !m.isOver() {
			t.Error("its connection goes on")
		}
	})
}

// Decisions of one namespace don't take the memory for those of others, and nobody waits for it.
func TestDecisionsAreKeptAsLongAsThereIsMemory(t *testing.T) {
	const size = 1000
	inBubble(t, dispatch.Limits{DecisionBytes: 4 * size}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		var calls []wire.Held
		for i := range 4 {
			call := held(fmt.Sprint("c", i), wire.Running)
			call.Decision = strings.Repeat("d", size)
			calls = append(calls, call)
		}
		kept := func() (n int) {
			for _, call := range m.session.HeldCalls() {
				if call.Decision != "" {
					n++
				}
			}
			return n
		}
		for range 5 {
			// The older connection gives its part back.
			m.connect(calls...)
			if got := kept(); got != 2 || len(m.session.HeldCalls()) != len(calls) {
				t.Fatalf("of %d calls %d decisions are kept", len(m.session.HeldCalls()), got)
			}
			m.disconnect()
		}
		m.connect(calls[0])
		for i := range 10 {
			a := assignmentOf(fmt.Sprint("a", i))
			a.Decision = strings.Repeat("d", size)
			if err := m.session.Assign("s1", a); err != nil {
				t.Fatal(err)
			}
			m.report(a.CallUID, a.Decision)
			if got := kept(); got != 2 {
				t.Fatalf("%d decisions are kept", got)
			}
			if err := m.session.Ack(a.CallUID); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestResultsOfASessionTakeTheirPartsOfTheBudget(t *testing.T) {
	const size = 100 << 10
	inBubble(t, dispatch.Limits{ResultBytes: 2 * size, BytesPerNamespace: 2 * size}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1", "c2", "c3")
		for _, uid := range []string{"c1", "c2", "c3"} {
			body := largeResultOf(uid, size)
			if uid != "c3" {
				m.send(body)
				continue
			}
			go func() { _ = m.write(body) }()
		}
		expect(t, "news", o.news(), "call-c1, call-c2")
		time.Sleep(dispatch.IdleTimeout)
		expect(t, "news without room", o.news(), "")
		if err := m.session.Ack("c1"); err != nil {
			t.Fatal(err)
		}
		expect(t, "news with room", o.news(), "call-c3")
		for name, end := range map[string]func(){"an end": func() { m.disconnect() }, "a refusal": func() { m.session.Refuse("no"); o.news() }} {
			// What came on the last connection takes its part until somebody has recorded it.
			m.disconnect()
			o.hub.Release(m.process.keyHash, "c2")
			o.hub.Release(m.process.keyHash, "c3")
			m.connect(held("c2", wire.Ended), held("c3", wire.Ended))
			o.news()
			for _, uid := range []string{"c2", "c3"} {
				m.send(largeResultOf(uid, size))
			}
			expect(t, "news before "+name, o.news(), "call-c2, call-c3")
			end()
		}
	})
}

// The operator waits for the frame before it begins. Where nothing is to come, it waits for none.
func TestTheLargestResultArrives(t *testing.T) {
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.mustAssign("c1")
		m.send(largeResultOf("c1", wire.MaxResult))
		expect(t, "news", o.news(), "call-c1")
		m.connect(held("c1", wire.Running))
		m.announce(wire.MaxResult + 1)
		if !m.isOver() {
			t.Error("a larger one is waited for")
		}
	})
}

func TestWhatNoRunnerSendsEndsItsConnection(t *testing.T) {
	for name, message := range map[string]string{
		"a result of another call": resultOf("c2"), "another call is known": `{"known":{"callUID":"c2"}}`,
		"a hello": `{"hello":{}}`, "a held call": `{"held":{"uid":"c1","name":"call","state":"Running"}}`, "an assignment": `{"assign":{"callUID":"c1"}}`,
	} {
		forEachOwner(t, func(t *testing.T, o *operator, m *member) {
			m.mustAssign("c1")
			session := m.session
			_ = m.write(message)
			if !m.isOver() || states(session.HeldCalls()) != "c1 Assigned" || o.hub.Result(m.process.keyHash, "c2") != nil {
				t.Errorf("%s: it goes on with %v", name, session.HeldCalls())
			}
		})
	}
	forEachOwner(t, func(t *testing.T, _ *operator, m *member) {
		_ = m.write(largeResultOf("c1", 2<<10))
		if !m.isOver() {
			t.Error("a large result of no call: it goes on")
		}
	})
}

// Assignments can be large: for a runner that doesn't read, no more of them wait than there is room for.
func TestARunnerThatDoesNotReadIsAssignedNoMore(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		p := n.peer(t)
		p.send(changedHello(t, o, func(h *wire.Hello) { h.Serving = &wire.Serving{Owner: theSession} }))
		s := o.event(t)
		large := func(uid string) *wire.Assignment {
			a := assignmentOf(uid)
			a.Stdin = make([]byte, dispatch.MaxQueuedBytes)
			return a
		}
		for _, uid := range []string{"c1", "c2"} {
			// The first is on its way.
			if err := s.Assign("s1", large(uid)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := s.Assign("s1", assignmentOf("c3")); !errors.Is(err, dispatch.ErrNoRoom) {
			t.Errorf("a third: %v", err)
		}
		for range 2 {
			if m, err := p.receive(); err != nil || m.Assign == nil {
				t.Fatalf("got %+v, %v", m, err)
			}
			synctest.Wait()
		}
		expect(t, "news", o.news(), "owner")
		if err := s.Assign("s1", assignmentOf("c3")); err != nil {
			t.Errorf("after it has read: %v", err)
		}
		go p.awaitEnd()
	})
}

// All that a session can have at a time can be said at once to a runner that hasn't read yet.
func TestASessionIsStartedAndStoppedAtOnce(t *testing.T) {
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		p := n.peer(t)
		p.send(changedHello(t, o, func(h *wire.Hello) { h.Serving = &wire.Serving{Owner: theSession} }))
		s := o.event(t)
		most := wire.MaxConcurrentCalls + wire.MaxBackgroundCalls
		for i := range most {
			if err := s.Assign("s1", assignmentOf(fmt.Sprint("c", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Assign("s1", assignmentOf("more")); !errors.Is(err, dispatch.ErrNoRoom) {
			t.Errorf("one more than can run: %v", err)
		}
		for i := range most {
			if err := s.Stop(fmt.Sprint("c", i), result.SessionEnded); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.End("now"); err != nil {
			t.Fatal(err)
		}
		for range most + most + 1 {
			if _, err := p.receive(); err != nil {
				t.Fatal(err)
			}
		}
		go p.awaitEnd()
	})
}
