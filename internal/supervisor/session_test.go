package supervisor_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

// inSession runs a test with a runner that has begun with a session.
func inSession(t *testing.T, test func(b *bench, p *pipe)) {
	t.Helper()
	begun(t, theSession, test)
}

func inBackground(a *wire.Assignment) { a.Background = true }

func TestASessionTakesCallAfterCall(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		for _, uid := range []string{"c1", "c2", "c3"} {
			b.run(p, uid)
			b.complete(p, uid)
			p.in <- ack(uid)
		}
		p.in <- ended("IdleTimeout")
		b.wantExit()
	})
}

func TestACallThatIsStoppedBeforeItsAssignmentNeverStarts(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		// An acknowledgement of what isn't kept changes nothing.
		for _, m := range []*wire.Message{stopped("c2"), stopped("c2"), assigned("c2"), ack("c2"), assigned("c2"), stopped("c2")} {
			p.in <- m
			if m.Ack != nil {
				continue
			}
			if o := b.wantResult(p, "c2"); o.Started || o.Reason != result.CancelRequested {
				t.Errorf("one that isn't known: %+v", o)
			}
		}
		p.in <- &wire.Message{Stop: &wire.Stop{CallUID: "c3", Reason: result.SessionEnded}}
		if o := b.wantResult(p, "c3"); o.Started || o.Reason != result.SessionEnded {
			t.Errorf("with another reason: %+v", o)
		}
		b.wantStarts("c1")
		p.Close()
		if _, said := b.connect(); said.Taken != 3 || len(said.Calls) != 1 {
			t.Errorf("the hello says %+v", said)
		}
	})
}

func TestAHelloSaysWhatTheRunnerHas(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		for _, uid := range []string{"c1", "c2"} {
			b.run(p, uid)
		}
		b.complete(p, "c1")
		b.run(p, "c3", inBackground)
		p.in <- ack("c1")
		synctest.Wait()
		b.complete(p, "c2")
		for range 3 {
			p.Close()
			b.dials <- nil
			var said *wire.Serving
			p, said = b.connect()
			want := []wire.Held{
				{UID: "c2", Name: "name-c2", State: wire.Ended, Decision: "sealed-c2"},
				{UID: "c3", Name: "name-c3", State: wire.Running, Decision: "sealed-c3", Background: true},
			}
			if said.Taken != 3 || !slices.Equal(said.Calls, want) {
				t.Errorf("the hello says %+v", said)
			}
			b.wantResult(p, "c2")
		}
		p.in <- ack("c2")
		synctest.Wait()
		// What ends while there is no connection is said in the next hello.
		p.Close()
		synctest.Wait()
		b.finish("c3")
		synctest.Wait()
		p, said := b.connect()
		if len(said.Calls) != 1 || said.Calls[0].State != wire.Ended {
			t.Errorf("the hello says %+v", said)
		}
		b.wantResult(p, "c3")
	})
}

func TestMoreCallsThanMayRunAreNotTaken(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		for _, uid := range []string{"c1", "c2"} {
			b.run(p, uid)
		}
		for i := range wire.MaxBackgroundCalls {
			uid := "b" + string(rune('a'+i))
			b.run(p, uid, inBackground)
		}
		for _, m := range []*wire.Message{assigned("c3"), assigned("c3", inBackground)} {
			p.in <- m
			b.wantLeft(p)
			var said *wire.Serving
			p, said = b.connect()
			if said.Taken != 2+wire.MaxBackgroundCalls || len(b.started()) != said.Taken {
				t.Errorf("the hello says %+v", said)
			}
		}
		b.complete(p, "c1")
		b.run(p, "c3")
	})
}

func TestTheRunnerKeepsNoMoreResultsThanItMay(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		kept := 0
		for ; !p.isClosed(); kept++ {
			uid := fmt.Sprintf("c%d", kept)
			p.in <- assigned(uid)
			synctest.Wait()
			if p.isClosed() {
				break
			}
			b.wantRunning(uid)
			b.complete(p, uid)
		}
		if kept != wire.MaxHeldCalls {
			t.Errorf("%d results are kept", kept)
		}
		p, said := b.connect()
		for range said.Held {
			<-p.out
		}
		p.in <- ack("c0")
		b.run(p, "next")
	})
}

func TestASuspendedSessionHasNotEnded(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		p.in <- ended("SessionSuspended")
		if o := b.wantResult(p, "c1"); o.Reason != result.CancelRequested || o.Message != "the session was suspended, which ends its calls" {
			t.Errorf("%+v", o)
		}
	})
}

func TestTheEndOfASession(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		for _, uid := range []string{"c1", "c2"} {
			b.run(p, uid)
		}
		b.complete(p, "c1")
		p.in <- ended("MaxLifetime")
		if o := b.wantResult(p, "c2"); !o.Started || o.Reason != result.CancelRequested {
			t.Errorf("what runs: %+v", o)
		}
		p.in <- assigned("c3")
		if o := b.wantResult(p, "c3"); o.Started || o.Reason != result.SessionEnded || o.Message != "the session ended: MaxLifetime" {
			t.Errorf("what comes later: %+v", o)
		}
		p.in <- ack("c1")
		p.in <- ack("c3")
		p.in <- assigned("c3")
		b.wantKnown(p, "c3")
		p.Close()
		p, said := b.connect()
		if len(said.Calls) != 1 || said.Calls[0].UID != "c2" {
			t.Errorf("the hello says %+v", said)
		}
		b.wantResult(p, "c2")
		p.in <- ack("c2")
		b.wantExit()
		b.wantStarts("c1", "c2")
	})
}

func TestASessionHasNoMoreCallsThanItMay(t *testing.T) {
	few := theSession
	few.MaxCalls = 3
	begun(t, few, func(b *bench, p *pipe) {
		b.run(p, "c1")
		b.complete(p, "c1")
		p.in <- ack("c1")
		for _, uid := range []string{"c2", "c3", "c4", "c5"} {
			p.in <- stopped(uid)
			b.wantResult(p, uid)
		}
		// A UID that isn't remembered any more isn't started either.
		for _, uid := range []string{"c4", "c6"} {
			p.in <- assigned(uid)
			if o := b.wantResult(p, uid); o.Started || o.Reason != result.SessionEnded {
				t.Errorf("%s: %+v", uid, o)
			}
			p.in <- ack(uid)
		}
		p.in <- assigned("c1")
		b.wantKnown(p, "c1")
		p.Close()
		if _, said := b.connect(); said.Taken != 3 || said.Held != 0 {
			t.Errorf("the hello says %+v", said)
		}
	})
}

func TestWhatCantBeEndedOfACallEndsItsSession(t *testing.T) {
	inSession(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		b.lose(supervisor.Survivors)
		check := func(uid string, started bool) {
			if o := b.wantResult(p, uid); o.Reason != result.PodLost || o.Started != started || o.Message != supervisor.Survivors.Message {
				t.Errorf("%s: got %+v", uid, o)
			}
		}
		check("c1", true)
		p.in <- assigned("c2")
		check("c2", false)
		p.in <- ack("c1")
		p.in <- ack("c2")
		b.wantExit()
	})
}
