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

func TestAnyRefusalEndsARunnerThatWaits(t *testing.T) {
	for _, final := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, theCall)
			p, _ := b.connect()
			p.in <- refuse(final)
			b.wantRefused()
			if len(b.saved) != 0 {
				t.Error("a copy of no result was saved")
			}
			b.stop()
		})
	}
}

func TestTheEndOfThePodEndsARunnerThatWaitsAtOnce(t *testing.T) {
	waiting(t, func(b *bench, p *pipe) {
		p.Close()
		// It waits longer from time to time.
		for range 10 {
			b.dials <- nil
		}
		synctest.Wait()
		b.terminate()
		synctest.Wait()
		if len(b.ended) != 1 {
			b.t.Error("it waits for an operator")
		}
	})
}

func TestAFinalRefusalEndsARunnerThatHasBegun(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		p.in <- refuse(true)
		b.wantRefused()
		if len(b.saved) != 0 {
			b.t.Error("a copy of no result was saved")
		}
	})
}

func TestAFinalRefusalStopsTheCommand(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		p.in <- refuse(true)
		b.wantRefused()
		if len(b.running) != 0 {
			b.t.Error("the runner ended before its command did")
		}
		b.wantSaved("c1")
		b.wantUnrecorded("c1")
	})
}

// The call has ended without the result: it was given up, or deleted. Nobody will ever record the result.
func TestAFinalRefusalEndsARunnerWithAResultButNotSilently(t *testing.T) {
	for name, sent := range map[string]bool{"a result that was sent": true, "a result that wasn't": false} {
		t.Run(name, func(t *testing.T) {
			ofBoth(t, func(b *bench, p *pipe) {
				b.run(p, "c1")
				if sent {
					b.complete(p, "c1")
				} else {
					p.Close()
					synctest.Wait()
					b.finish("c1")
					synctest.Wait()
					p = b.again(wire.Ended)
				}
				p.in <- refuse(true)
				b.wantRefused()
				b.wantSaved("c1")
				b.wantUnrecorded("c1")
				if last := b.lines[len(b.lines)-1]; !strings.Contains(last, "for a reason") {
					b.t.Errorf("logged %q", last)
				}
			})
		})
	}
}

// An operator of another version, or one that has too many connections, turns the runner away, and another one may not.
func TestARunnerThatIsTurnedAwayKeepsWhatItHas(t *testing.T) {
	for name, state := range map[string]wire.CallState{"while the command runs": wire.Running, "with a result": wire.Ended} {
		t.Run(name, func(t *testing.T) {
			ofBoth(t, func(b *bench, p *pipe) {
				b.ReconnectTimeout = time.Minute
				b.run(p, "c1")
				if state == wire.Ended {
					b.complete(p, "c1")
				}
				for range 3 {
					p.in <- refuse(false)
					b.wantLeft(p)
					for began := time.Now(); time.Since(began) < time.Hour; {
						b.dials <- nil
					}
					p = b.again(state)
				}
				if state == wire.Running {
					b.complete(p, "c1")
				}
				b.wantEnd(p, "c1")
				b.wantStarts("c1")
			})
		})
	}
}

// Begin, the assignment and the end of the connection arrive together: any of them may be seen first.
func TestAHelloSaysWhetherACommandWasStarted(t *testing.T) {
	for name, owner := range owners {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			for range 200 {
				synctest.Test(t, func(t *testing.T) { seen[helloAfterALoss(t, owner)]++ })
			}
			if len(seen) != 3 {
				t.Errorf("not every order was seen: %v", seen)
			}
		})
	}
}

func helloAfterALoss(t *testing.T, owner wire.Begin) string {
	b := start(t, owner)
	defer b.stop()
	first := newPipe()
	first.in <- begin(owner)
	first.in <- assigned("c1")
	first.Close()
	b.dials <- first
	<-b.hellos
	second, said := b.connect()
	switch {
	case said == nil:
		b.wantStarts()
		// Only what the second connection begins with counts.
		b.owner = *wire.BeginCall("c2", "name-c2")
		second.in <- begin(b.owner)
		b.run(second, "c2")
		b.wantStarts("c2")
		return "waits"
	case said.Taken == 0 && said.Held == 0:
		b.wantStarts()
		b.run(second, "c1")
		b.wantStarts("c1")
		return "has begun"
	default:
		if said.Taken != 1 || said.Held != 1 {
			t.Errorf("the hello says %+v", said)
		}
		b.wantStarts("c1")
		return "has the call"
	}
}

func TestAnOperatorThatTurnsRunnersAwayIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, theCall)
		dials := 0
		for began := time.Now(); time.Since(began) < time.Minute; dials++ {
			p, _ := b.connect()
			p.Close()
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
		b := start(t, theCall)
		for range 100 {
			b.dials <- nil
		}
		p, _ := b.connect()
		p.Close()
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
		b := start(t, theCall)
		for range 20 {
			p, _ := b.connect()
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
	ofBoth(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		synctest.Wait()
		p.out = make(chan *wire.Message) // Nobody reads.
		b.finish("c1")
		synctest.Wait()
		p.Close()
		p = b.again(wire.Ended)
		b.wantEnd(p, "c1")
	})
}

func TestOnlyAWaitingRunnerEndsWhenNoOperatorIsFound(t *testing.T) {
	const timeout = 15 * time.Minute
	for name, test := range map[string]struct {
		timeout  time.Duration
		messages []*wire.Message
		ends     bool
	}{
		"it waits":                 {timeout, nil, true},
		"it has begun a call":      {timeout, []*wire.Message{begin(theCall)}, false},
		"it has a call":            {timeout, []*wire.Message{begin(theCall), assigned("c1")}, false},
		"it has begun a session":   {timeout, []*wire.Message{begin(theSession)}, false},
		"it has a session's call":  {timeout, []*wire.Message{begin(theSession), assigned("c1")}, false},
		"it waits without a bound": {0, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, theCall, func(b *bench) { b.ReconnectTimeout = test.timeout })
				p, _ := b.connect()
				time.Sleep(24 * time.Hour)
				for _, m := range test.messages {
					p.in <- m
				}
				synctest.Wait()
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
					t.Errorf("the runner ended: %t, %s after it lost the operator", ended, time.Since(lost))
				}
				if after := time.Since(lost); test.ends && (after < timeout || after > timeout+time.Minute) {
					t.Errorf("the runner ended after %s", after)
				}
				b.stop()
				if err := <-b.ended; errors.Is(err, supervisor.ErrNoOperator) != test.ends {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}
