package dispatch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// resultOf is a small result, as a runner encodes it.
func resultOf(callUID string) string {
	return fmt.Sprintf(`{"result":{"callUID":%q,"outcome":{"reason":"Completed","started":true,"exitCode":0},"environment":{}}}`, callUID)
}

// largeResultOf is a result whose frame has exactly that size.
func largeResultOf(callUID string, size int) string {
	body := resultOf(callUID)
	return body + strings.Repeat(" ", size-len(body))
}

// endsAtOnce checks that the operator ends a connection because of what was sent, and takes nothing of it.
func endsAtOnce(t *testing.T, o *operator, p *peer, what string) {
	t.Helper()
	began := time.Now()
	p.awaitEnd()
	if took := time.Since(began); took != 0 {
		t.Errorf("%s: the connection went on for %s", what, took)
	}
	o.event(t)
	synctest.Wait()
	if len(o.events) != 0 || o.hub.Len() != 0 {
		t.Errorf("%s: was taken", what)
	}
}

func TestARunnerThatWaitsSendsOnlyPings(t *testing.T) {
	for name, say := range map[string]func(*operator, *peer){
		"a small result":     func(_ *operator, p *peer) { p.send(resultOf("")) },
		"a result of a call": func(_ *operator, p *peer) { p.send(resultOf("c1")) },
		"a large frame":      func(_ *operator, p *peer) { p.announce(wire.MaxControl + 1) },
		"a second hello":     func(o *operator, p *peer) { p.send(helloOf(o, wire.Version, "job", &theCall)) },
		"a held call":        func(_ *operator, p *peer) { p.send(`{"held":{"uid":"c1","name":"call","state":"Running"}}`) },
		"a start":            func(_ *operator, p *peer) { p.send(`{"started":{"callUID":"c1","startedMicroseconds":1}}`) },
		"a known call":       func(_ *operator, p *peer) { p.send(`{"known":{"callUID":"c1"}}`) },
		"an assignment":      func(_ *operator, p *peer) { p.send(`{"assign":{"callUID":"c1"}}`) },
		"an unknown message": func(_ *operator, p *peer) { p.send(`{"exec":{}}`) },
	} {
		synctest.Test(t, func(t *testing.T) {
			n, o := bubble(t, dispatch.Limits{})
			p := n.peer(t)
			p.waits(o, "job")
			o.event(t)
			say(o, p)
			endsAtOnce(t, o, p, name)
		})
	}
}

func TestARunnerWithACallSendsOneResultOfIt(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for name, test := range map[string]struct {
		say   func(*peer)
		taken bool
	}{
		"its result":              {func(p *peer) { p.send(resultOf("c1")) }, true},
		"the largest frame":       {func(p *peer) { p.send(largeResultOf("c1", wire.MaxResult)) }, true},
		"a frame over the bound":  {func(p *peer) { p.announce(wire.MaxResult + 1) }, false},
		"another call's result":   {func(p *peer) { p.send(resultOf("c2")) }, false},
		"another call's, large":   {func(p *peer) { p.send(largeResultOf("c2", wire.MaxResult)) }, false},
		"a result that isn't one": {func(p *peer) { p.send(`{"result":[]}`) }, false},
		"a large ping":            {func(p *peer) { p.send(`{"ping":{}}` + strings.Repeat(" ", wire.MaxControl)) }, false},
		"half a result":           {func(p *peer) { p.announce(wire.MaxResult); _ = p.CloseWrite() }, false},
	} {
		for what, owner := range owners {
			p := newPeer(t, o)
			p.hasCall(o, "job", owner)
			session := o.event(t)
			test.say(p)
			if !test.taken {
				p.Close()
			}
			if o.event(t) != session || (session.ResultOf("c1") != nil) != test.taken || session.ResultOf("c2") != nil {
				t.Errorf("%s, of %s: result %+v", name, what, session.ResultOf("c1"))
			}
			if test.taken {
				p.Close()
				o.event(t)
			}
			if o.hub.Result(session.KeyHash(), "c2") != nil {
				t.Errorf("%s, of %s: another call has it", name, what)
			}
			o.hub.Release(session.KeyHash(), "c1")
		}
	}
}

// The first one counts, and takes its part of the budget. There is no room for a large second one.
func TestASecondResultOfACallIsNotTaken(t *testing.T) {
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.mustAssign("c1")
		m.report("c1", "sealed-c1")
		taken := m.session.ResultOf("c1")
		expect(t, "news", o.news(), "call-c1")
		m.report("c1", "another")
		if !m.isOver() || taken == nil || o.hub.Result(m.process.keyHash, "c1") != taken {
			t.Error("a second result is taken, or the connection goes on")
		}
	})
	forEachOwner(t, func(t *testing.T, _ *operator, m *member) {
		m.mustAssign("c1")
		m.report("c1", "sealed-c1")
		m.announce(wire.MaxControl + 1)
		if !m.isOver() {
			t.Error("a large second one is waited for")
		}
	})
}

// Also of its own call, it can have none before it is given that.
func TestARunnerThatHasNoCallYetReportsNone(t *testing.T) {
	forEachOwner(t, func(t *testing.T, o *operator, m *member) {
		m.send(resultOf("c1"))
		if !m.isOver() || len(m.session.HeldCalls()) != 0 || m.session.Taken() != 0 || o.hub.Result(m.process.keyHash, "c1") != nil {
			t.Errorf("it is taken for something: %v", m.session.HeldCalls())
		}
	})
	forEachOwner(t, func(t *testing.T, _ *operator, m *member) {
		m.announce(wire.MaxControl + 1)
		if !m.isOver() {
			t.Error("a large result is waited for")
		}
	})
}

// It exits because of the acknowledgement: a refusal of its call would contradict that.
func TestARunnerThatWasAcknowledgedIsNotRefused(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	p := newPeer(t, o)
	p.hasCall(o, "job", theCall)
	session := o.event(t)
	p.send(resultOf("c1"))
	o.event(t)
	if err := session.Ack("c1"); err != nil {
		t.Fatal(err)
	}
	session.Refuse("the call has ended")
	if m, err := p.receive(); err != nil || m.Ack == nil {
		t.Errorf("got %+v, %v; want the acknowledgement", m, err)
	}
	p.send(`{"ping":{}}`)
	if m, err := p.receive(); err != nil || m.Pong == nil {
		t.Errorf("got %+v, %v after it", m, err)
	}
}

// A call that somebody else ended is recorded before its result comes. That is read, and counts no more.
func TestAResultOfACallThatIsRecordedIsReadAndDropped(t *testing.T) {
	for name, state := range map[string]wire.CallState{"it runs": wire.Running, "it has ended": wire.Ended} {
		forEachOwner(t, func(t *testing.T, o *operator, m *member) {
			m.connect(held("c1", state))
			m.session.Record("c1")
			m.send(largeResultOf("c1", 100<<10))
			if m.isOver() || m.session.ResultOf("c1") != nil || states(m.session.HeldCalls()) != "c1 Ended" {
				t.Fatalf("%s: the connection has ended: %t; held are %v", name, m.isOver(), m.session.HeldCalls())
			}
			expect(t, name+", heard", m.hears(), "")
			if err := m.session.Ack("c1"); err != nil {
				t.Fatal(err)
			}
			expect(t, name+", heard", m.hears(), "ack c1")
			expect(t, name+", held", states(m.session.HeldCalls()), "")
			m.disconnect()
			if o.hub.Result(m.process.keyHash, "c1") != nil {
				t.Errorf("%s: the result is kept", name)
			}
		})
	}
}

// Somebody else ended the call, and all is stored when the result is still on its way.
func TestARecordedCallIsAcknowledgedWhenItsResultArrives(t *testing.T) {
	forEachOwner(t, func(t *testing.T, _ *operator, m *member) {
		m.connect(held("c1", wire.Ended))
		m.session.Record("c1")
		if err := m.session.Ack("c1"); err != nil {
			t.Fatal(err)
		}
		expect(t, "heard", m.hears(), "")
		m.send(largeResultOf("c1", 100<<10))
		expect(t, "heard", m.hears(), "ack c1")
		expect(t, "held", states(m.session.HeldCalls()), "")
	})
}

func TestALargeResultArrivesOnTheConnectionThatBroughtTheCall(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	p := newPeer(t, o)
	p.waits(o, "job")
	session := o.event(t)
	for range 3 {
		// The operator has begun to wait for the next frame long before it assigns the call.
		p.send(`{"ping":{}}`)
		if m, err := p.receive(); err != nil || m.Pong == nil {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	if err := session.Begin(beginOf(theCall)); err != nil {
		t.Fatal(err)
	}
	if err := session.Assign("c1", &wire.Assignment{CallUID: "c1", CallName: "call"}); err != nil {
		t.Fatal(err)
	}
	if m, err := p.receive(); err != nil || m.Begin == nil {
		t.Fatalf("got %+v, %v", m, err)
	}
	if m, err := p.receive(); err != nil || m.Assign == nil {
		t.Fatalf("got %+v, %v", m, err)
	}
	p.send(largeResultOf("c1", wire.MaxResult))
	if o.event(t) != session || session.ResultOf("c1") == nil {
		t.Error("the result was not taken")
	}
}

func TestTheLargestLegalResultArrivesWhole(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	conn := connect(t, runnerOf(t, podEnv(o, "job")), servingC1(theCall))
	session := o.event(t)
	kept := bytes.Repeat([]byte{0xff}, result.MaxStreamBytes/2)
	stream := result.Stream{Head: kept, Tail: kept, Bytes: 1 << 40, InvalidUTF8: true}
	sent := &wire.Result{CallUID: "c1", Outcome: result.Outcome{
		Reason: result.Completed, Started: true, ExitCode: result.Exit(0), Message: strings.Repeat("\x01", result.MaxMessage),
		Stdout: stream, Stderr: stream,
	}}
	if err := conn.Send(&wire.Message{Result: sent}); err != nil {
		t.Fatal(err)
	}
	o.event(t)
	got := session.ResultOf("c1")
	if got == nil || got.Validate() != nil {
		t.Fatalf("got %v", got)
	}
	if want, have := mustJSON(t, sent), mustJSON(t, got); want != have {
		t.Error("it differs from what was sent")
	}
	if session.Record("c1"); session.ResultOf("c1") != nil {
		t.Error("it is still there after it was recorded")
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTooManyPingsEndAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{})
		p := n.peer(t)
		p.waits(o, "job")
		o.event(t)
		for range 10_000 {
			time.Sleep(2 * time.Second)
			p.send(`{"ping":{}}`)
			if m, err := p.receive(); err != nil || m.Pong == nil {
				t.Fatalf("got %+v, %v", m, err)
			}
		}
		time.Sleep(dispatch.IdleTimeout / 2)
		began := time.Now()
		for range dispatch.PingBurst {
			p.send(`{"ping":{}}`)
			if _, err := p.receive(); err != nil {
				t.Fatal(err)
			}
		}
		p.send(`{"ping":{}}`)
		p.awaitEnd()
		if time.Since(began) != 0 || o.event(t).Hello().Job != "job" || o.hub.Len() != 0 {
			t.Error("a runner that pings without end was not ended at once")
		}
	})
}

// reporter is a runner that has a call, sends its result, and then pings as long as the connection lasts.
func reporter(t *testing.T, n *network, o *operator, job string, size int) *peer {
	t.Helper()
	return reporterFor(t, n, o, theCall, job, size)
}

func reporterFor(t *testing.T, n *network, o *operator, owner wire.Owner, job string, size int) *peer {
	t.Helper()
	p := n.peer(t)
	p.hasCall(o, job, owner)
	o.event(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		for body := largeResultOf("c1", size); p.write(body) == nil; body = `{"ping":{}}` {
			select {
			case <-over:
				return
			case <-time.After(wire.PingInterval):
			}
		}
	}()
	synctest.Wait()
	return p
}

func TestResultsWaitForMemoryBeforeTheyAreRead(t *testing.T) {
	const size = 100 << 10
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{ResultBytes: 3 * size, BytesPerNamespace: 2 * size})
		for _, job := range []string{"a", "b"} {
			go reporter(t, n, o, job, size).awaitEnd()
		}
		first, second := o.event(t), o.event(t)
		if first.ResultOf("c1") == nil || second.ResultOf("c1") == nil {
			t.Fatal("what there is room for didn't arrive")
		}
		late := reporter(t, n, o, "late", size)
		if len(o.events) != 0 || o.hub.Runner("late-uid").ResultOf("c1") != nil {
			t.Fatal("a result arrived that there is no room for")
		}
		// Its runner hears that the operator is alive, and others are served meanwhile.
		for range 20 {
			if m, err := late.receive(); err != nil || m.Pong == nil {
				t.Fatalf("got %+v, %v", m, err)
			}
		}
		pings := n.peer(t)
		pings.waits(o, "pings")
		o.event(t)
		pings.send(`{"ping":{}}`)
		if m, err := pings.receive(); err != nil || m.Pong == nil {
			t.Fatalf("got %+v, %v", m, err)
		}
		// Recorded, the first result makes room.
		if err := first.Ack("c1"); err != nil {
			t.Fatal(err)
		}
		if s := o.event(t); s.Hello().Job != "late" || s.ResultOf("c1") == nil {
			t.Errorf("%s has result %v", s.Hello().Job, s.ResultOf("c1"))
		}
	})
}

func TestTheBudgetIsGivenBack(t *testing.T) {
	const size = 100 << 10
	for name, end := range map[string]func(*dispatch.Runner, *peer){
		"by an acknowledgement": func(s *dispatch.Runner, _ *peer) { _ = s.Ack("c1") },
		"by a record":           func(s *dispatch.Runner, _ *peer) { s.Record("c1"); s.Record("c1") },
		"by a refusal":          func(s *dispatch.Runner, _ *peer) { s.Refuse("gone") },
		"by a release":          func(_ *dispatch.Runner, p *peer) { p.Close() },
		"by one after an error": func(_ *dispatch.Runner, p *peer) { p.announce(1 << 30) },
	} {
		for what, owner := range owners {
			synctest.Test(t, func(t *testing.T) {
				n, o := bubble(t, dispatch.Limits{ResultBytes: size, BytesPerNamespace: size})
				for i := range 5 {
					p := reporterFor(t, n, o, owner, fmt.Sprint(i), size)
					session := o.event(t)
					if session.ResultOf("c1") == nil {
						t.Fatalf("%s of %s: result %d has no room", name, what, i)
					}
					go func() { p.awaitEnd() }()
					end(session, p)
					if name != "by an acknowledgement" && name != "by a record" {
						o.event(t)
						o.hub.Release(session.KeyHash(), "c1")
					}
				}
			})
		}
	}
}

func TestWhatIsNoResultKeepsNothingOfTheBudget(t *testing.T) {
	const size = 100 << 10
	for name, body := range map[string]string{
		"a large ping":          `{"ping":{}}`,
		"junk":                  `junk`,
		"another call's result": resultOf("c2"),
	} {
		for what, owner := range owners {
			synctest.Test(t, func(t *testing.T) {
				n, o := bubble(t, dispatch.Limits{ResultBytes: size, BytesPerNamespace: size})
				for i := range 3 {
					p := n.peer(t)
					p.hasCall(o, fmt.Sprint("job-", i), owner)
					o.event(t)
					p.send(body + strings.Repeat(" ", size-len(body)))
					synctest.Wait()
				}
				for len(o.events) > 0 {
					<-o.events
				}
				reporter(t, n, o, "honest", size)
				if len(o.events) != 1 || o.event(t).ResultOf("c1") == nil {
					t.Errorf("%s of %s: the budget is used up", name, what)
				}
			})
		}
	}
}

func TestAResultOfARunnerThatWaitsKeepsNothingOfTheBudget(t *testing.T) {
	size := len(resultOf("c1"))
	inBubble(t, dispatch.Limits{SmallResultBytes: int64(size)}, func(t *testing.T, n *network, o *operator) {
		for range 3 {
			p := n.peer(t)
			p.waits(o, "job")
			o.event(t)
			p.send(resultOf("c1"))
			endsAtOnce(t, o, p, "a result of a runner that waits")
		}
		reporter(t, n, o, "honest", size)
		if len(o.events) != 1 || o.event(t).ResultOf("c1") == nil {
			t.Error("the budget is used up")
		}
	})
}

// What is announced takes its part of the budget until it has arrived or its time is over.
func TestAResultThatDoesNotArriveIsGivenUp(t *testing.T) {
	const size = 100 << 10
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{ResultBytes: size, BytesPerNamespace: size})
		slow := n.peer(t)
		slow.hasCall(o, "slow", theCall)
		o.event(t)
		slow.announce(size)
		synctest.Wait()
		began := time.Now()
		go slow.awaitEnd()
		go reporter(t, n, o, "quick", size).awaitEnd()
		for range 2 {
			if s := o.event(t); (s.ResultOf("c1") != nil) != (s.Hello().Job == "quick") {
				t.Errorf("%s has result %v", s.Hello().Job, s.ResultOf("c1"))
			}
		}
		if took := time.Since(began); took != dispatch.ResultGrace {
			t.Errorf("given up after %s", took)
		}
	})
}

func TestARunnerThatWaitsForMemoryIsEndedWithItsSession(t *testing.T) {
	const size = 100 << 10
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{ResultBytes: size, BytesPerNamespace: size})
		go reporter(t, n, o, "holds", size).awaitEnd()
		o.event(t)
		waits := reporter(t, n, o, "waits", size)
		o.hub.Runner("waits-uid").Refuse("gone")
		if m, err := waits.receive(); err != nil || m.Refuse == nil || !m.Refuse.Final {
			t.Errorf("got %+v, %v", m, err)
		}
		if s := o.event(t); s.Hello().Job != "waits" || o.hub.Len() != 1 {
			t.Errorf("%s ended, %d are left", s.Hello().Job, o.hub.Len())
		}
	})
}

// unread is a runner that was begun and given a call, and reads nothing of that.
func unread(t *testing.T, n *network, o *operator) (*process, *peer, *dispatch.Runner) {
	t.Helper()
	process := newProcess(t)
	p := process.connect(t, n)
	p.waits(o, "job")
	s := o.event(t)
	if err := s.Begin(beginOf(theCall)); err != nil {
		t.Fatal(err)
	}
	if err := s.Assign("c1", assignmentOf("c1")); err != nil {
		t.Fatal(err)
	}
	return process, p, s
}

// What a peer doesn't read would stay in memory, as often as it connects.
func TestNobodyWaitsForAPeerThatEndsItsConnectionAndDoesNotReadWhatItWasSent(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(*testing.T, *network, *operator, *process, *peer){
		"it says what no runner says": func(_ *testing.T, _ *network, _ *operator, _ *process, p *peer) {
			_ = p.write(`{"known":{"callUID":"another"}}`)
		},
		"it connects again": func(t *testing.T, n *network, o *operator, c *process, _ *peer) {
			c.connect(t, n).waits(o, "job")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
				process, p, _ := unread(t, n, o)
				began := time.Now()
				ends(t, n, o, process, p)
				for p.write(`{"ping":{}}`) == nil {
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("its connection is there for %v", took)
				}
			})
		})
	}
}

func TestAConnectionCountsUntilItHasEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, dispatch.Limits{Runners: 1}, func(t *testing.T, n *network, o *operator) {
		_, _, s := unread(t, n, o)
		s.Refuse("the call is gone")
		o.news()
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{0, 0}, {time.Minute, 1}} {
			time.Sleep(c.after)
			n.peer(t).waits(o, "another")
			synctest.Wait()
			if got := o.hub.Len(); got != c.want {
				t.Errorf("after %v, %d other runners are served", c.after, got)
			}
		}
	})
}
