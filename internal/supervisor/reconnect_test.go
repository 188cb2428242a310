package supervisor_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/supervisor"
)

func ack(uid string) *wire.Message { return &wire.Message{Ack: &wire.Ack{CallUID: uid}} }

func refuse(uid string) *wire.Message {
	return &wire.Message{Refuse: &wire.Refusal{Reason: "for a reason", CallUID: uid}}
}

func TestARefusalEndsARunnerThatWaits(t *testing.T) {
	for name, uid := range map[string]string{"that names a call": "c1", "that names none": ""} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			p := b.connect()
			p.in <- refuse(uid)
			if err := <-b.ended; !errors.Is(err, supervisor.ErrRefused) || !strings.Contains(err.Error(), "for a reason") {
				t.Errorf("a refusal %s: ended with %v", name, err)
			}
			if b.saved != nil {
				t.Error("a copy of no result was saved")
			}
			b.stop()
		})
	}
}

func TestARefusalOfTheCallStopsItsCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		p.in <- refuse("c1")
		if err := <-b.ended; !errors.Is(err, supervisor.ErrRefused) {
			t.Errorf("ended with %v", err)
		}
		if b.saved == nil {
			t.Error("the runner ended before its command did")
		}
		b.stop()
	})
}

// The call has ended without the result: it was given up, or deleted. Nobody will ever record the result.
func TestARefusalOfTheCallEndsARunnerWithAResultButNotSilently(t *testing.T) {
	for name, sent := range map[string]bool{"a result that was sent": true, "a result that wasn't": false} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			p := b.connect()
			p.in <- assign("c1")
			synctest.Wait()
			if !sent {
				p.Close()
			}
			close(b.finish)
			synctest.Wait()
			if !sent {
				p = b.connect()
			}
			<-p.out
			p.in <- refuse("c1")
			if err := <-b.ended; !errors.Is(err, supervisor.ErrRefused) {
				t.Errorf("%s: ended with %v", name, err)
			}
			last := b.lines[len(b.lines)-1]
			if b.saved == nil || !strings.Contains(last, "c1") || !strings.Contains(last, "for a reason") {
				t.Errorf("%s: saved %v, logged %q", name, b.saved, last)
			}
			b.stop()
		})
	}
}

// An operator of another version, or one that has too many connections, turns the runner away without naming its call.
func TestARunnerThatIsTurnedAwayKeepsItsCall(t *testing.T) {
	for name, finished := range map[string]bool{"while the command runs": false, "with a result": true} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			p := b.connect()
			p.in <- assign("c1")
			synctest.Wait()
			if finished {
				close(b.finish)
				<-p.out
			}
			for _, uid := range []string{"", "c2"} {
				p.in <- refuse(uid)
				p = b.connect()
				if finished {
					<-p.out
				}
			}
			if !finished {
				close(b.finish)
				<-p.out
			}
			p.in <- ack("c1")
			if err := <-b.ended; err != nil {
				t.Errorf("%s: ended with %v", name, err)
			}
			b.stop()
		})
	}
}

func TestAHelloWithoutACallSaysThatNoCommandWasStarted(t *testing.T) {
	seen := map[string]int{}
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			first := newPipe()
			// The assignment and the end of the connection arrive together: either may be seen first.
			first.in <- assign("c1")
			first.Close()
			b.dials <- first
			<-b.calls
			second := b.connect()
			said := <-b.calls
			seen[said]++
			synctest.Wait()
			if want := map[string]int{"": 0, "c1": 1}[said]; len(b.starts) != want {
				t.Errorf("the hello names call %q after starts of %v", said, b.starts)
			}
			if said == "" {
				second.in <- assign("c2")
				synctest.Wait()
				if len(b.starts) != 1 || b.starts[0] != "c2" {
					t.Errorf("started %v; only the second connection's call counts", b.starts)
				}
			}
			b.stop()
			<-b.ended
		})
	}
	if len(seen) != 2 {
		t.Errorf("not every order was seen: %v", seen)
	}
}

func TestAnOperatorThatTurnsRunnersAwayIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		dials := 0
		for began := time.Now(); time.Since(began) < time.Minute; dials++ {
			b.connect().Close()
			<-b.calls
		}
		// Some at first, then about one a second.
		if dials > 90 {
			t.Errorf("%d connections in a minute", dials)
		}
		b.stop()
		<-b.ended
	})
}

func TestAnOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		for range 100 {
			b.dials <- nil
		}
		b.connect().Close()
		b.dials <- nil
		b.dials <- nil
		synctest.Wait()
		if len(b.lines) != 3 {
			t.Errorf("logged %q", b.lines)
		}
		b.stop()
		<-b.ended
	})
}

func TestARunnerThatWasServedConnectsAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		for range 20 {
			p := b.connect()
			<-b.calls
			time.Sleep(time.Hour)
			p.Close()
			lost := time.Now()
			b.dials <- nil
			if waited := time.Since(lost); waited > 20*time.Millisecond {
				t.Fatalf("it waited %s", waited)
			}
		}
		b.stop()
		<-b.ended
	})
}

func TestARunnerThatIsBlockedSendingNoticesTheEndOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		p.out = make(chan *wire.Message) // Nobody reads.
		close(b.finish)
		synctest.Wait()
		p.Close()
		p = b.connect()
		if m := <-p.out; m.Result == nil {
			t.Fatalf("got %+v", m)
		}
		p.in <- ack("c1")
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		b.stop()
	})
}

func TestAnOperatorThatSendsWithoutEndIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		p.out = make(chan *wire.Message)
		close(b.finish)
		synctest.Wait()
		// The runner is blocked sending its result, and handles nothing.
		for !p.isClosed() {
			p.in <- ack("c2")
			synctest.Wait()
		}
		p = b.connect()
		<-p.out
		p.in <- ack("c1")
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		b.stop()
	})
}

func TestAWaitingRunnerEndsWhenNoOperatorIsFound(t *testing.T) {
	const timeout = 15 * time.Minute
	for name, test := range map[string]struct {
		timeout  time.Duration
		assigned bool
		ends     bool
	}{
		"it waits for a call":  {timeout, false, true},
		"it has a call":        {timeout, true, false},
		"it has no such bound": {0, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			b.ReconnectTimeout = test.timeout
			p := b.connect()
			time.Sleep(24 * time.Hour)
			if test.assigned {
				p.in <- assign("c1")
				synctest.Wait()
			}
			p.Close()
			lost := time.Now()
			for len(b.ended) == 0 && time.Since(lost) < 10*timeout {
				select {
				case b.dials <- nil:
				case <-time.After(time.Minute):
				}
				synctest.Wait()
			}
			if ended := len(b.ended) == 1; ended != test.ends {
				t.Errorf("%s: the runner ended: %t, %s after it lost the operator", name, ended, time.Since(lost))
			}
			if after := time.Since(lost); test.ends && (after < timeout || after > timeout+time.Minute) {
				t.Errorf("%s: the runner ended after %s", name, after)
			}
			if test.ends {
				if err := <-b.ended; !errors.Is(err, supervisor.ErrNoOperator) {
					t.Errorf("ended with %v", err)
				}
			} else {
				b.stop()
				<-b.ended
			}
			b.stop()
		})
	}
}

func TestTheEndOfTheProcessEndsEverything(t *testing.T) {
	for name, prepare := range map[string]func(*bench){
		"while it connects": func(*bench) {},
		"while it waits":    func(b *bench) { b.connect() },
		"while it runs":     func(b *bench) { b.connect().in <- assign("c1") },
		"while it reconnects with a call": func(b *bench) {
			p := b.connect()
			p.in <- assign("c1")
			synctest.Wait()
			p.Close()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			prepare(b)
			synctest.Wait()
			b.cancel()
			if err := <-b.ended; err == nil {
				t.Errorf("%s: ended well", name)
			}
			if len(b.starts) != 0 && b.saved == nil {
				t.Errorf("%s: the command is still running", name)
			}
			b.stop()
		})
	}
}
