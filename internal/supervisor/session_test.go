package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/supervisor"
)

// sessionBench is a supervisor that takes sessions. Its operator and its calls are the test.
type sessionBench struct {
	*bench
	t *testing.T
	// hellos are what the runner says of its session; nil before it has one.
	hellos chan *wire.Session

	mu sync.Mutex
	// starts are the UIDs in the order in which they started, running how they are ended, ran the most at a time.
	starts  []string
	running map[string]chan result.Outcome
	ran     int
	// lose is terminate with a cause.
	lose context.CancelCauseFunc
}

func startSession(t *testing.T) *sessionBench {
	t.Helper()
	b := &sessionBench{
		bench: &bench{dials: make(chan *pipe), ended: make(chan error, 1)}, t: t,
		hellos: make(chan *wire.Session, 64), running: map[string]chan result.Outcome{},
	}
	var last *pipe
	connect := func(ctx context.Context, said *wire.Session) (supervisor.Conn, error) {
		if last != nil && !last.isClosed() {
			t.Error("the runner connects again before it has closed its connection")
		}
		select {
		case last = <-b.dials:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if last == nil {
			return nil, errors.New("nobody listens")
		}
		b.hellos <- said
		return last, nil
	}
	b.Supervisor = &supervisor.Supervisor{
		Dial: func(ctx context.Context, call dial.Call) (supervisor.Conn, error) {
			if call.UID != "" {
				t.Errorf("the hello names call %q", call.UID)
			}
			return connect(ctx, nil)
		},
		DialSession:  connect,
		BeginSession: func(*wire.Begin) supervisor.ExecuteFunc { return b.execute },
		Log:          func(line string) { b.lines = append(b.lines, line) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	terminate, lose := context.WithCancelCause(context.Background())
	b.cancel, b.lose, b.terminate = cancel, lose, func() { lose(nil) }
	go func() { b.ended <- b.Run(ctx, terminate) }()
	return b
}

// execute is a command that runs until the test ends it, or until it is stopped.
func (b *sessionBench) execute(ctx context.Context, a *wire.Assignment, started func(time.Time)) *wire.Result {
	r := &wire.Result{CallUID: a.CallUID}
	if cause := context.Cause(ctx); cause != nil {
		why := runner.StopCause(cause)
		r.Outcome = result.Outcome{Reason: why.Reason, Message: why.Message}
		return r
	}
	finish := make(chan result.Outcome, 1)
	b.mu.Lock()
	b.starts = append(b.starts, a.CallUID)
	b.running[a.CallUID] = finish
	b.ran = max(b.ran, len(b.running))
	b.mu.Unlock()
	started(time.UnixMicro(int64(len(a.CallUID))))
	select {
	case r.Outcome = <-finish:
	case <-ctx.Done():
		why := runner.StopCause(context.Cause(ctx))
		r.Outcome = result.Outcome{Reason: why.Reason, Message: why.Message}
	}
	r.Outcome.Started = true
	b.mu.Lock()
	delete(b.running, a.CallUID)
	b.mu.Unlock()
	return r
}

// finish ends a command.
func (b *sessionBench) finish(uid string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[uid] == nil {
		b.t.Fatalf("%s doesn't run", uid)
	}
	b.running[uid] <- result.Outcome{Reason: result.Completed, ExitCode: result.Exit(0)}
}

func (b *sessionBench) started() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.starts)
}

var theSession = wire.Begin{SessionUID: "s1", SessionName: "session", Incarnation: 3, MaxCalls: 100, MaxConcurrentCalls: 2}

func begin() *wire.Message { return &wire.Message{Begin: &theSession} }

// inSession runs a test with a session that has begun.
func inSession(t *testing.T, test func(b *sessionBench, p *pipe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := startSession(t)
		p := b.connect()
		if said := <-b.hellos; said != nil {
			t.Errorf("a runner that waits has session %+v", said)
		}
		p.in <- begin()
		defer synctest.Wait()
		defer b.stop()
		test(b, p)
	})
}

// again connects, and returns what the hello said.
func (b *sessionBench) again() (*pipe, *wire.Session) {
	p := b.connect()
	return p, <-b.hellos
}

func assigned(uid string, changes ...func(*wire.Assignment)) *wire.Message {
	a := &wire.Assignment{CallUID: uid, CallName: "name-" + uid, Decision: "sealed-" + uid}
	for _, change := range changes {
		change(a)
	}
	return &wire.Message{Assign: a}
}

func inBackground(a *wire.Assignment) { a.Background = true }

func stopped(uid string) *wire.Message {
	return &wire.Message{Stop: &wire.Stop{CallUID: uid, Reason: result.CancelRequested}}
}

func ended(reason string) *wire.Message { return &wire.Message{End: &wire.End{Reason: reason}} }

func (b *sessionBench) wantStarted(p *pipe, uid string) {
	b.t.Helper()
	if m := <-p.out; m.Started == nil || m.Started.CallUID != uid || m.Started.StartedMicroseconds != int64(len(uid)) {
		b.t.Errorf("got %+v; want that %s started", m, uid)
	}
}

// wantResult returns the outcome.
func (b *sessionBench) wantResult(p *pipe, uid string) result.Outcome {
	b.t.Helper()
	m := <-p.out
	if m.Result == nil || m.Result.CallUID != uid {
		b.t.Fatalf("got %+v; want the result of %s", m, uid)
	}
	if r := m.Result; r.Outcome.Started && r.Decision != "sealed-"+uid {
		b.t.Errorf("the result of %s gives back %q", uid, r.Decision)
	}
	return m.Result.Outcome
}

func (b *sessionBench) wantKnown(p *pipe, uid string) {
	b.t.Helper()
	if m := <-p.out; m.Known == nil || m.Known.CallUID != uid {
		b.t.Errorf("got %+v; want that %s is known", m, uid)
	}
}

// wantLeft says that the runner has left the connection.
func (b *sessionBench) wantLeft(p *pipe) {
	b.t.Helper()
	synctest.Wait()
	if !p.isClosed() {
		b.t.Error("the runner stays")
	}
}

func TestASessionTakesCallAfterCall(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		for _, uid := range []string{"c1", "c2", "c3"} {
			p.in <- assigned(uid)
			b.wantStarted(p, uid)
			b.finish(uid)
			if o := b.wantResult(p, uid); o.Reason != result.Completed || !o.Started {
				t.Errorf("got %+v", o)
			}
			p.in <- ack(uid)
		}
		p.in <- ended("IdleTimeout")
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestAnAssignmentIsAnsweredByWhatTheRunnerHas(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		for range 3 {
			p.in <- assigned("c1")
			b.wantStarted(p, "c1")
		}
		b.finish("c1")
		b.wantResult(p, "c1")
		for range 3 {
			p.in <- assigned("c1")
			b.wantResult(p, "c1")
		}
		p.in <- ack("c1")
		p.in <- assigned("c1")
		b.wantKnown(p, "c1")
		p.in <- stopped("c1")
		b.wantKnown(p, "c1")
		if got := b.started(); len(got) != 1 {
			t.Errorf("started %v", got)
		}
	})
}

func TestAStop(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		p.in <- assigned("c1")
		b.wantStarted(p, "c1")
		p.in <- stopped("c1")
		if o := b.wantResult(p, "c1"); !o.Started || o.Reason != result.CancelRequested {
			t.Errorf("one that runs: %+v", o)
		}
		p.in <- stopped("c1")
		if o := b.wantResult(p, "c1"); !o.Started {
			t.Errorf("one that has ended: %+v", o)
		}
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
		if got := b.started(); len(got) != 1 {
			t.Errorf("started %v", got)
		}
		p.Close()
		if _, said := b.again(); said.Taken != 3 || len(said.Calls) != 1 {
			t.Errorf("the hello says %+v", said)
		}
	})
}

func TestAnAcknowledgementOfACallThatRunsIsIgnored(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		p.in <- assigned("c1")
		b.wantStarted(p, "c1")
		p.in <- ack("c1")
		p.in <- assigned("c1")
		b.wantStarted(p, "c1")
		b.finish("c1")
		b.wantResult(p, "c1")
		p.in <- ack("c1")
		p.in <- assigned("c1")
		b.wantKnown(p, "c1")
	})
}

func TestAHelloSaysWhatTheRunnerHas(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		for _, uid := range []string{"c1", "c2"} {
			p.in <- assigned(uid)
			b.wantStarted(p, uid)
		}
		b.finish("c1")
		b.wantResult(p, "c1")
		p.in <- assigned("c3", inBackground)
		b.wantStarted(p, "c3")
		p.in <- ack("c1")
		synctest.Wait()
		b.finish("c2")
		b.wantResult(p, "c2")
		for range 3 {
			p.Close()
			b.dials <- nil
			var said *wire.Session
			p, said = b.again()
			want := []wire.Held{
				{UID: "c2", Name: "name-c2", State: wire.Ended, Decision: "sealed-c2"},
				{UID: "c3", Name: "name-c3", State: wire.Running, Decision: "sealed-c3", Background: true},
			}
			if said.UID != "s1" || said.Name != "session" || said.Incarnation != 3 || said.Taken != 3 || said.Held != 2 || !slices.Equal(said.Calls, want) {
				t.Errorf("the hello says %+v", said)
			}
			for i := range want {
				if m := <-p.out; m.Held == nil || *m.Held != want[i] {
					t.Errorf("after the hello comes %+v", m)
				}
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
		p, said := b.again()
		if len(said.Calls) != 1 || said.Calls[0].State != wire.Ended {
			t.Errorf("the hello says %+v", said)
		}
		<-p.out
		b.wantResult(p, "c3")
	})
}

func TestMoreCallsThanMayRunAreNotTaken(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		for _, uid := range []string{"c1", "c2"} {
			p.in <- assigned(uid)
			b.wantStarted(p, uid)
		}
		for i := range wire.MaxBackgroundCalls {
			uid := "b" + string(rune('a'+i))
			p.in <- assigned(uid, inBackground)
			b.wantStarted(p, uid)
		}
		for _, m := range []*wire.Message{assigned("c3"), assigned("c3", inBackground)} {
			p.in <- m
			b.wantLeft(p)
			var said *wire.Session
			p, said = b.again()
			if said.Taken != 2+wire.MaxBackgroundCalls || len(b.started()) != said.Taken {
				t.Errorf("the hello says %+v", said)
			}
			for range said.Held {
				<-p.out
			}
		}
		b.finish("c1")
		b.wantResult(p, "c1")
		p.in <- assigned("c3")
		b.wantStarted(p, "c3")
	})
}

func TestTheRunnerKeepsNoMoreResultsThanItMay(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		kept := 0
		for ; !p.isClosed(); kept++ {
			uid := fmt.Sprintf("c%d", kept)
			p.in <- assigned(uid)
			synctest.Wait()
			if p.isClosed() {
				break
			}
			b.wantStarted(p, uid)
			b.finish(uid)
			b.wantResult(p, uid)
		}
		if kept != wire.MaxHeldCalls {
			t.Errorf("%d results are kept", kept)
		}
		p, said := b.again()
		for range 2 * said.Held {
			<-p.out
		}
		p.in <- ack("c0")
		p.in <- assigned("next")
		b.wantStarted(p, "next")
	})
}

func TestTheEndOfASession(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		for _, uid := range []string{"c1", "c2"} {
			p.in <- assigned(uid)
			b.wantStarted(p, uid)
		}
		b.finish("c1")
		b.wantResult(p, "c1")
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
		p, said := b.again()
		if len(said.Calls) != 1 || said.Calls[0].UID != "c2" {
			t.Errorf("the hello says %+v", said)
		}
		<-p.out
		b.wantResult(p, "c2")
		p.in <- ack("c2")
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		if got := b.started(); len(got) != 2 {
			t.Errorf("started %v", got)
		}
	})
}

func TestASessionHasNoMoreCallsThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startSession(t)
		p, _ := b.again()
		few := theSession
		few.MaxCalls = 3
		p.in <- &wire.Message{Begin: &few}
		p.in <- assigned("c1")
		b.wantStarted(p, "c1")
		b.finish("c1")
		b.wantResult(p, "c1")
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
		if _, said := b.again(); said.Taken != 3 || said.Held != 0 {
			t.Errorf("the hello says %+v", said)
		}
		b.stop()
		<-b.ended
	})
}

func TestTheEndOfThePodEndsASession(t *testing.T) {
	for name, connected := range map[string]bool{"with an operator": true, "without one": false} {
		inSession(t, func(b *sessionBench, p *pipe) {
			p.in <- assigned("c1")
			b.wantStarted(p, "c1")
			if !connected {
				p.Close()
			}
			b.terminate()
			synctest.Wait()
			if n := len(b.running); n != 0 {
				t.Errorf("%s: %d calls run on", name, n)
			}
			if !connected {
				p, _ = b.again()
				<-p.out
			}
			if o := b.wantResult(p, "c1"); o.Reason != result.PodLost || !o.Started {
				t.Errorf("%s: got %+v", name, o)
			}
			p.in <- assigned("c2")
			if o := b.wantResult(p, "c2"); o.Reason != result.PodLost || o.Started {
				t.Errorf("%s: a later call: %+v", name, o)
			}
			p.in <- ack("c1")
			p.in <- ack("c2")
			if err := <-b.ended; err != nil {
				t.Errorf("%s: ended with %v", name, err)
			}
		})
	}
}

func TestWhatCantBeEndedOfACallEndsItsSession(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		p.in <- assigned("c1")
		b.wantStarted(p, "c1")
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
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestTheEndOfThePodEndsASessionWithoutCalls(t *testing.T) {
	for name, connected := range map[string]bool{"with an operator": true, "without one": false} {
		inSession(t, func(b *sessionBench, p *pipe) {
			synctest.Wait()
			if !connected {
				p.Close()
			}
			b.terminate()
			if err := <-b.ended; err != nil {
				t.Errorf("%s: ended with %v", name, err)
			}
		})
	}
}

func TestTheEndOfTheProcessEndsASession(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		for _, uid := range []string{"c1", "c2"} {
			p.in <- assigned(uid)
			b.wantStarted(p, uid)
		}
		b.cancel()
		if err := <-b.ended; err == nil {
			t.Error("ended well")
		}
		if len(b.running) != 0 || len(b.lines) != 2 {
			t.Errorf("%d calls run on; logged %q", len(b.running), b.lines)
		}
	})
}

func TestARunnerOfASessionNeverGivesUp(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		b.ReconnectTimeout = time.Minute
		p.in <- assigned("c1")
		b.wantStarted(p, "c1")
		b.finish("c1")
		b.wantResult(p, "c1")
		// None of these is about the session.
		for _, uid := range []string{"", "c1", "s1"} {
			p.in <- refuse(uid)
			b.wantLeft(p)
			for began := time.Now(); time.Since(began) < time.Hour; {
				b.dials <- nil
			}
			p, _ = b.again()
			<-p.out
			b.wantResult(p, "c1")
		}
	})
}

func TestWhatDoesNotFitASessionEndsTheConnection(t *testing.T) {
	other := theSession
	other.SessionUID = "s2"
	for name, m := range map[string]*wire.Message{
		"another session":                  {Begin: &other},
		"a call without a UID":             assigned(""),
		"a decision that can't be said":    assigned("c1", func(a *wire.Assignment) { a.Decision = "\n" }),
		"a name that can't be said":        assigned("c1", func(a *wire.Assignment) { a.CallName = "\"" }),
		"a refusal that names the session": refuse("s1"),
	} {
		inSession(t, func(b *sessionBench, p *pipe) {
			p.in <- begin() // A repetition is ignored.
			p.in <- m
			b.wantLeft(p)
			if p, said := b.again(); said.UID != "s1" || said.Taken != 0 {
				t.Errorf("%s: the hello says %+v", name, said)
			} else {
				p.in <- assigned("c2")
				b.wantStarted(p, "c2")
			}
		})
	}
}

func TestASessionBeginsOnlyInARunnerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		b.BeginSession = func(*wire.Begin) supervisor.ExecuteFunc { t.Error("begun"); return nil }
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		p.in <- begin()
		p = b.connect()
		close(b.finish)
		if m := <-p.out; m.Result == nil || m.Result.CallUID != "c1" {
			t.Errorf("got %+v", m)
		}
		p.in <- ack("c1")
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := startSession(t)
		p, _ := b.again()
		none := theSession
		none.MaxCalls = 0
		p.in <- &wire.Message{Begin: &none}
		b.wantLeft(p)
		if _, said := b.again(); said != nil {
			t.Errorf("the hello says %+v", said)
		}
		b.stop()
		<-b.ended
	})
}

func TestARunnerThatIsBlockedSendingHearsTheOperator(t *testing.T) {
	inSession(t, func(b *sessionBench, p *pipe) {
		synctest.Wait()
		for _, uid := range []string{"c1", "c2"} {
			p.in <- assigned(uid)
			b.wantStarted(p, uid)
		}
		p.out <- nil // Somebody reads no further than the seven that have room.
		for range 40 {
			p.in <- assigned("c1")
		}
		p.in <- stopped("c2")
		synctest.Wait()
		if _, runs := b.running["c2"]; runs {
			t.Error("a call isn't stopped while nobody reads")
		}
		for range 1000 {
			if p.isClosed() {
				break
			}
			p.in <- assigned("c1")
			synctest.Wait()
		}
		b.wantLeft(p)
		if _, said := b.again(); said.Held != 2 {
			t.Errorf("the hello says %+v", said)
		}
	})
}
