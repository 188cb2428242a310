package dispatch

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// transcript is what a runner was sent, in order.
type transcript struct {
	mu   sync.Mutex
	said []string
}

func (l *transcript) send(m *wire.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case m.Begin != nil:
		l.said = append(l.said, "begin "+m.Begin.UID)
	case m.Assign != nil:
		l.said = append(l.said, "assign "+m.Assign.CallUID)
	case m.Stop != nil:
		l.said = append(l.said, "stop "+m.Stop.CallUID)
	case m.Ack != nil:
		l.said = append(l.said, "ack "+m.Ack.CallUID)
	case m.End != nil:
		l.said = append(l.said, "end")
	case m.Refuse != nil:
		l.said = append(l.said, "refuse")
	}
	return nil
}

// A call may wait for its session: it is assigned as soon as the session has begun here, and after the end it isn't. A runner
// must hear of both in that order, or it leaves the connection.
func TestARunnerHearsOfItsOwnerBeforeItsCallsAndOfNoneAfterItsEnd(t *testing.T) {
	t.Parallel()
	for uid, begin := range map[string]*wire.Begin{"c": wire.BeginCall("c", "call"), "s0": sessionBegin(0)} {
		for range 20 {
			var heard transcript
			var others sync.WaitGroup
			s := newOfflineRunner(NewHub(func(*Runner, News) {}), "job", "")
			assign := func(uid string) error {
				return s.Assign(begin.UID, &wire.Assignment{CallUID: uid, CallName: "call", Decision: "d"})
			}
			// Others come while a message is about to be sent, and see what is true by then.
			s.send = func(m *wire.Message) error {
				switch {
				case m.Begin != nil:
					others.Go(func() { _ = assign("c") })
				case m.Assign != nil:
					others.Go(func() { _ = s.End("over") })
				}
				for range 1000 {
					runtime.Gosched()
				}
				return heard.send(m)
			}
			if err := s.Begin(begin); err != nil {
				t.Fatal(err)
			}
			others.Wait()
			if err := assign("late"); err == nil {
				t.Error("a call is assigned after the end")
			}
			if want := []string{"begin " + uid, "assign c", "end"}; !slices.Equal(heard.said, want) {
				t.Fatalf("the runner hears %q, want %q", heard.said, want)
			}
		}
	}
}

// Begin and Assign are repeated by passes at the same time, and each is sent once.
func TestManyPassesBeginAndAssignOnce(t *testing.T) {
	t.Parallel()
	for want, begin := range map[string]*wire.Begin{"c": wire.BeginCall("c", "call"), "s0": sessionBegin(0)} {
		var heard transcript
		s := newOfflineRunner(NewHub(func(*Runner, News) {}), "job", "")
		s.send = heard.send
		var passes sync.WaitGroup
		for range 8 {
			passes.Go(func() {
				for range 50 {
					if err := s.Begin(begin); err != nil {
						t.Error(err)
					}
					if err := s.Assign(begin.UID, &wire.Assignment{CallUID: "c", CallName: "call", Decision: "d"}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		passes.Wait()
		if want := []string{"begin " + want, "assign c"}; !slices.Equal(heard.said, want) {
			t.Errorf("the runner hears %q, want %q", heard.said, want)
		}
	}
}

func TestARunnerBeginsOnlyWhatItsPodWasMadeFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		madeFor string
		begin   *wire.Begin
		want    error
	}{
		"the call that it was made for":           {"call", wire.BeginCall("c1", "call"), nil},
		"another call":                            {"call", wire.BeginCall("c1", "other"), errMadeFor},
		"a session, made for a call":              {"call", sessionBegin(0), errMadeFor},
		"a call, made for whoever comes":          {"", wire.BeginCall("c1", "call"), nil},
		"a session, made for whoever comes":       {"", sessionBegin(0), nil},
		"a session of the name that it waits for": {"session0", sessionBegin(0), errMadeFor},
	} {
		var heard transcript
		s := newOfflineRunner(NewHub(func(*Runner, News) {}), "job", c.madeFor)
		s.send = heard.send
		if err := s.Begin(c.begin); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if s.IsWaiting() != (c.want != nil) || len(heard.said) != 0 == (c.want != nil) {
			t.Errorf("%s: it waits: %t, and heard %q", name, s.IsWaiting(), heard.said)
		}
	}
}

func TestARunnerThatHasBegunBeginsNothingElse(t *testing.T) {
	t.Parallel()
	later := sessionBegin(0)
	later.Incarnation++
	begins := map[string]*wire.Begin{
		"a call": wire.BeginCall("c1", "call"), "another of the name": wire.BeginCall("c2", "call"),
		"a session": sessionBegin(0), "another session": sessionBegin(1), "its next pod": later,
	}
	for first, begin := range begins {
		var heard transcript
		s := newOfflineRunner(NewHub(func(*Runner, News) {}), "job", "")
		s.send = heard.send
		for range 2 {
			if err := s.Begin(begin); err != nil {
				t.Fatal(err)
			}
		}
		for second, other := range begins {
			if err := s.Begin(other); (err == nil) != (first == second) || err != nil && !errors.Is(err, errNotServed) {
				t.Errorf("%s begins after %s: %v", second, first, err)
			}
		}
		if owner, _ := s.Owner(); owner != begin.Owner || len(heard.said) != 1 {
			t.Errorf("%s: it is the runner of %+v, and heard %q", first, owner, heard.said)
		}
	}
}

// What is on its way when a runner is refused counts as little as what it had: nobody would release it.
func TestNothingCountsThatARunnerSaysAfterItWasRefused(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]*wire.Begin{"a call": wire.BeginCall("c", "call"), "a session": sessionBegin(0)} {
		h := NewHub(func(*Runner, News) {})
		var heard transcript
		s := newOfflineRunner(h, "job", "")
		s.send = heard.send
		h.add(s)
		if err := s.Begin(begin); err != nil {
			t.Fatal(err)
		}
		if err := s.Assign(begin.UID, &wire.Assignment{CallUID: "c", CallName: "call", Decision: "d"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s.Refuse("gone")
		}
		released := 0
		_, _ = s.setResult(&wire.Result{CallUID: "c"}, func() { released++ })
		_ = s.Stop("c", "reason")
		_ = s.End("over")
		h.remove(s)
		if released != 1 || h.Result(s.keyHash, "c") != nil {
			t.Errorf("%s: the result was released %d times, and is kept: %t", name, released, h.Result(s.keyHash, "c") != nil)
		}
		if want := []string{"begin " + begin.UID, "assign c", "refuse"}; !slices.Equal(heard.said, want) {
			t.Errorf("%s: the runner hears %q, want %q", name, heard.said, want)
		}
	}
}

// hasExited is what the sweep takes for the runner's end.
func TestARunnerOfACallHasExitedWhenItsResultIsAcknowledged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin *wire.Begin
		want  bool
	}{"a call": {wire.BeginCall("c", "call"), true}, "a session": {sessionBegin(0), false}} {
		s := newOfflineRunner(NewHub(func(*Runner, News) {}), "job", "")
		for what, step := range []struct {
			do   func()
			want bool
		}{
			{func() {}, false},
			{func() { _ = s.Begin(c.begin) }, false},
			{func() { _ = s.Assign(c.begin.UID, &wire.Assignment{CallUID: "c", CallName: "call", Decision: "d"}) }, false},
			{func() { _ = s.Ack("c") }, false},
			{func() { _, _ = s.setResult(&wire.Result{CallUID: "c"}, func() {}) }, false},
			{func() { s.Record("c") }, false},
			{func() { _ = s.Ack("c") }, c.want},
		} {
			if step.do(); s.hasExited() != step.want {
				t.Errorf("%s: after step %d it has exited: %t", name, what, s.hasExited())
			}
		}
	}
}

// A call that is too large for a message was never sent: its runner goes on waiting for it.
func TestARunnerIsNotChargedForACallThatWasNotSent(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]*wire.Begin{"a call": wire.BeginCall("c", "call"), "a session": sessionBegin(0)} {
		s := newOfflineRunner(NewHub(func(*Runner, News) {}), "job", "")
		if err := s.Begin(begin); err != nil {
			t.Fatal(err)
		}
		s.send = func(*wire.Message) error { return wire.ErrTooLarge }
		if err := s.Assign(begin.UID, &wire.Assignment{CallUID: "c", CallName: "call", Decision: "d"}); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("%s: got %v", name, err)
		}
		if s.Taken() != 0 || len(s.HeldCalls()) != 0 || s.hasExited() {
			t.Errorf("%s: it has taken %d, holds %v, and has exited: %t", name, s.Taken(), s.HeldCalls(), s.hasExited())
		}
	}
}
