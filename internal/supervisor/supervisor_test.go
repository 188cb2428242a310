package supervisor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

func TestACallIsTakenToItsAcknowledgement(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		b.complete(p, "c1")
		b.wantEnd(p, "c1")
		b.wantSaved("c1")
	})
}

func TestAResultIsKeptUntilSomebodyTakesIt(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		p.Close()
		synctest.Wait()
		b.finish("c1")
		synctest.Wait()
		// Before anybody listens.
		b.wantSaved("c1")
		b.dials <- nil
		b.dials <- nil
		for range 3 {
			p = b.again(wire.Ended)
			p.Close()
		}
		p = b.again(wire.Ended)
		b.wantEnd(p, "c1")
		b.wantStarts("c1")
		b.wantSaved("c1")
	})
}

func TestAnAssignmentIsAnsweredByWhatTheRunnerHas(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		for range 3 {
			b.run(p, "c1")
		}
		p.Close()
		p = b.again(wire.Running)
		b.run(p, "c1")
		b.complete(p, "c1")
		for range 3 {
			p.in <- assigned("c1")
			b.wantResult(p, "c1")
		}
		b.wantStarts("c1")
		if b.owner.IsSession() {
			p.in <- ack("c1")
			p.in <- assigned("c1")
			b.wantKnown(p, "c1")
			p.in <- stopped("c1")
			b.wantKnown(p, "c1")
		}
		b.wantEnd(p, "c1")
		b.wantStarts("c1")
	})
}

func TestAnAcknowledgementOfWhatHasNotEndedIsIgnored(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		for _, uid := range []string{"", "c1", "c2"} {
			p.in <- ack(uid)
		}
		b.run(p, "c1")
		p.in <- ack("c1")
		b.run(p, "c1")
		b.complete(p, "c1")
		p.in <- ack("c2")
		p.in <- assigned("c1")
		b.wantResult(p, "c1")
		b.wantEnd(p, "c1")
		b.wantStarts("c1")
	})
}

func TestAStopIsForItsCallOnly(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		p.in <- stopped("c2")
		if o := b.wantResult(p, "c2"); o.Started || o.Reason != result.CancelRequested {
			b.t.Errorf("one that isn't known: %+v", o)
		}
		b.run(p, "c1")
		p.in <- stopped("c1")
		if o := b.wantResult(p, "c1"); !o.Started || o.Reason != result.CancelRequested {
			b.t.Errorf("one that runs: %+v", o)
		}
		// Its result crosses another one.
		p.in <- stopped("c1")
		synctest.Wait()
		if len(p.out) != 0 {
			b.t.Errorf("one that has ended: %+v", <-p.out)
		}
		b.wantEnd(p, "c1")
		b.wantStarts("c1")
	})
}

func TestAnEndStopsWhatRunsAndLetsNothingStart(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		p.in <- ended("MaxLifetime")
		if o := b.wantResult(p, "c1"); !o.Started || o.Reason != result.CancelRequested {
			b.t.Errorf("got %+v", o)
		}
		p.in <- ack("c1")
		b.wantExit()
	})
	ofBoth(t, func(b *bench, p *pipe) {
		p.in <- ended("MaxLifetime")
		p.in <- assigned("c1")
		b.wantExit()
		b.wantStarts()
	})
}

func TestWhatDoesNotFitEndsTheConnection(t *testing.T) {
	another := *wire.BeginCall("c2", "name-c2")
	otherSession, later := theSession, theSession
	otherSession.UID, later.Incarnation = "s2", 4
	for name, c := range map[string]struct {
		m      *wire.Message
		owners []wire.Begin
	}{
		"another call's Begin":          {begin(another), []wire.Begin{theCall, theSession}},
		"another session's Begin":       {begin(otherSession), []wire.Begin{theCall, theSession}},
		"a session's Begin":             {begin(theSession), []wire.Begin{theCall}},
		"a call's Begin":                {begin(theCall), []wire.Begin{theSession}},
		"another incarnation":           {begin(later), []wire.Begin{theSession}},
		"another call":                  {assigned("c2"), []wire.Begin{theCall}},
		"a call without a UID":          {assigned(""), []wire.Begin{theCall, theSession}},
		"a decision that can't be said": {assigned("c1", func(a *wire.Assignment) { a.Decision = "\n" }), []wire.Begin{theCall, theSession}},
		"a name that can't be said":     {assigned("c1", func(a *wire.Assignment) { a.CallName = "\"" }), []wire.Begin{theCall, theSession}},
		"a refusal that isn't final":    {refuse(false), []wire.Begin{theCall, theSession}},
	} {
		for _, owner := range c.owners {
			t.Run(name+" to a runner of "+string(owner.Kind), func(t *testing.T) {
				begun(t, owner, func(b *bench, p *pipe) {
					p.in <- begin(owner) // A repetition is ignored.
					p.in <- c.m
					b.wantLeft(p)
					p, said := b.connect()
					if said.Taken != 0 || said.Held != 0 {
						b.t.Errorf("the hello says %+v", said)
					}
					b.run(p, "c1")
					if c.m.Assign == nil || c.m.Assign.CallUID != "c1" {
						p.in <- c.m
						b.wantLeft(p)
						p = b.again(wire.Running)
					}
					b.complete(p, "c1")
					b.wantEnd(p, "c1")
					b.wantStarts("c1")
				})
			})
		}
	}
}

func TestAnAssignmentBeforeBeginEndsTheConnection(t *testing.T) {
	waiting(t, func(b *bench, p *pipe) {
		p.in <- ack("c1") // It says nothing to a runner that waits.
		synctest.Wait()
		if p.isClosed() {
			b.t.Error("the runner leaves")
		}
		p.in <- assigned("c1")
		p.in <- begin(theCall)
		b.wantLeft(p)
		if _, said := b.connect(); said != nil {
			b.t.Errorf("the hello says %+v", said)
		}
		b.wantStarts()
	})
}

func TestARunnerBeginsWithNothingThatCanNotBe(t *testing.T) {
	for name, change := range map[string]func(*wire.Begin){
		"no kind":                  func(b *wire.Begin) { b.Kind = "" },
		"no UID":                   func(b *wire.Begin) { b.UID = "" },
		"a call of two calls":      func(b *wire.Begin) { *b = theCall; b.MaxCalls = 2 },
		"a session without a call": func(b *wire.Begin) { b.MaxCalls = 0 },
		"a session without turns":  func(b *wire.Begin) { b.MaxConcurrentCalls = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			waiting(t, func(b *bench, p *pipe) {
				none := theSession
				change(&none)
				p.in <- begin(none)
				b.wantLeft(p)
				if _, said := b.connect(); said != nil {
					t.Errorf("the hello says %+v", said)
				}
			})
		})
	}
}

func TestTheEndOfThePodStopsTheCommandAndTheResultIsStillSent(t *testing.T) {
	for name, lose := range map[string]func(*pipe){
		"with an operator":    func(*pipe) {},
		"between two":         func(p *pipe) { p.Close(); synctest.Wait() },
		"while it dials":      func(p *pipe) { p.Close(); time.Sleep(time.Minute) },
		"with its connection": func(p *pipe) { p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ofBoth(t, func(b *bench, p *pipe) {
				b.run(p, "c1")
				lose(p)
				b.terminate()
				synctest.Wait()
				if n := len(b.running); n != 0 {
					b.t.Errorf("%d calls run on", n)
				}
				b.wantSaved("c1")
				time.Sleep(5 * time.Second)
				if p.isClosed() {
					p, _ = b.connect()
				}
				for range 3 {
					if o := b.wantResult(p, "c1"); o.Reason != result.PodLost || !o.Started {
						b.t.Errorf("got %+v", o)
					}
					p.Close()
					p, _ = b.connect()
				}
				b.wantResult(p, "c1")
				if b.owner.IsSession() {
					p.in <- assigned("c2")
					if o := b.wantResult(p, "c2"); o.Reason != result.PodLost || o.Started {
						b.t.Errorf("a later call: %+v", o)
					}
					p.in <- ack("c2")
				}
				p.in <- ack("c1")
				b.wantExit()
			})
		})
	}
}

func TestTheEndOfThePodBeforeItsFirstCallEndsARunnerThatHasBegun(t *testing.T) {
	for name, connected := range map[string]bool{"with an operator": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			ofBoth(t, func(b *bench, p *pipe) {
				synctest.Wait()
				if !connected {
					p.Close()
				}
				b.terminate()
				p.in <- assigned("c1")
				b.wantExit()
				b.wantStarts()
			})
		})
	}
}

func TestTheEndOfThePodBeforeItsBeginEndsTheRunner(t *testing.T) {
	for name, prepare := range map[string]func(*bench){
		"connected":       func(b *bench) { b.connect() },
		"between two":     func(b *bench) { p, _ := b.connect(); p.Close() },
		"with no answers": func(b *bench) { b.dials <- nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, theCall)
			prepare(b)
			synctest.Wait()
			b.terminate()
			synctest.Wait()
			select {
			case b.dials <- nil: // It may try once more.
			case err := <-b.ended:
				b.ended <- err
			}
			if err := <-b.ended; err == nil {
				t.Errorf("%s: ended well without having done anything", name)
			}
			b.stop()
		})
	}
}

// Begin, the assignment and SIGTERM come together: any of them may be seen first.
func TestTheEndOfThePodAtAnyMomentStartsACallAtMostOnceAndSaysWhetherItDid(t *testing.T) {
	moments := map[string]func(*bench){
		"before Begin": func(b *bench) { b.terminate() },
		"with Begin": func(b *bench) {
			b.Begin = func(*wire.Begin) supervisor.ExecuteFunc { b.terminate(); return b.execute }
		},
		"with the start": func(b *bench) {
			b.Begin = func(*wire.Begin) supervisor.ExecuteFunc {
				return func(ctx context.Context, a *wire.Assignment) *wire.Result {
					b.terminate()
					<-ctx.Done()
					return b.execute(ctx, a)
				}
			}
		},
		"about the start": func(b *bench) {
			b.Begin = func(*wire.Begin) supervisor.ExecuteFunc { go b.terminate(); return b.execute }
		},
		"at last": func(*bench) {},
	}
	for name, owner := range owners {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			for _, moment := range moments {
				for range 100 {
					synctest.Test(t, func(t *testing.T) { seen[endAtAMoment(t, owner, moment)]++ })
				}
			}
			for _, what := range []string{"before it has begun", "before it was assigned", "before its start", "while it runs"} {
				if seen[what] == 0 {
					t.Errorf("nothing ended %s: %v", what, seen)
				}
			}
		})
	}
}

// endAtAMoment says what the runner had done when its pod ended.
func endAtAMoment(t *testing.T, owner wire.Begin, moment func(*bench)) string {
	b := start(t, owner)
	defer b.stop()
	p := newPipe()
	p.in <- begin(owner)
	p.in <- assigned("c1")
	moment(b)
	select {
	case b.dials <- p:
		<-b.hellos
	case err := <-b.ended:
		b.ended <- err
	}
	synctest.Wait()
	b.terminate()
	synctest.Wait()
	var outcome *result.Outcome
	for len(p.out) > 0 {
		if m := <-p.out; m.Result != nil {
			outcome = &m.Result.Outcome
		}
	}
	n := len(b.started())
	if outcome == nil {
		b.wantStarts()
		if err := <-b.ended; err != nil {
			return "before it has begun"
		}
		return "before it was assigned"
	}
	if n > 1 || outcome.Started != (n == 1) || outcome.Reason != result.PodLost {
		t.Errorf("started %d times: %+v", n, outcome)
	}
	p.in <- ack("c1")
	b.wantExit()
	if outcome.Started {
		return "while it runs"
	}
	return "before its start"
}

func TestTheEndOfTheProcessEndsEverything(t *testing.T) {
	for name, prepare := range map[string]func(*bench){
		"while it connects": func(*bench) {},
		"while it waits":    func(b *bench) { b.connect() },
		"when it has begun": func(b *bench) { p, _ := b.connect(); p.in <- begin(b.owner) },
		"while it runs": func(b *bench) {
			p, _ := b.connect()
			p.in <- begin(b.owner)
			p.in <- assigned("c1")
		},
		"while it reconnects with a call": func(b *bench) {
			p, _ := b.connect()
			p.in <- begin(b.owner)
			b.run(p, "c1")
			p.Close()
		},
	} {
		for kind, owner := range owners {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := start(t, owner)
					prepare(b)
					synctest.Wait()
					b.cancel()
					if err := <-b.ended; err == nil {
						t.Error("ended well")
					}
					if len(b.running) != 0 {
						t.Error("the command is still running")
					}
					if len(b.starts) != 0 {
						b.wantSaved("c1")
						b.wantUnrecorded("c1")
					}
					b.stop()
				})
			})
		}
	}
}

func TestARunnerThatIsBlockedSendingHearsTheOperator(t *testing.T) {
	ofBoth(t, func(b *bench, p *pipe) {
		b.run(p, "c1")
		p.out <- nil // Somebody reads no further than the seven that have room.
		for range 40 {
			p.in <- assigned("c1")
		}
		p.in <- stopped("c1")
		synctest.Wait()
		if _, runs := b.running["c1"]; runs {
			b.t.Error("a call isn't stopped while nobody reads")
		}
		for range 1000 {
			if p.isClosed() {
				break
			}
			p.in <- assigned("c1")
			synctest.Wait()
		}
		b.wantLeft(p)
		b.again(wire.Ended)
	})
}
