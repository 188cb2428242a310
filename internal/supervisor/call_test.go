package supervisor_test

import (
	"testing"
	"testing/synctest"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

func TestTheRunnerOfACallTakesNoOther(t *testing.T) {
	for name, prepare := range map[string]func(*bench, *pipe){
		"before it has its own": func(*bench, *pipe) {},
		"while that runs":       func(b *bench, p *pipe) { b.run(p, "c1") },
		"with its result":       func(b *bench, p *pipe) { b.run(p, "c1"); b.complete(p, "c1") },
	} {
		t.Run(name, func(t *testing.T) {
			begun(t, theCall, func(b *bench, p *pipe) {
				prepare(b, p)
				before := b.started()
				p.in <- assigned("c2")
				b.wantLeft(p)
				b.wantStarts(before...)
				p, said := b.connect()
				if said.Taken != len(before) || said.Held != len(before) {
					t.Errorf("the hello says %+v", said)
				}
				// It is told never to start another one, and doesn't remember that in place of its own.
				p.in <- stopped("c2")
				hasSent := false
				for m := range p.out {
					if m.Result.CallUID == "c2" {
						break
					}
					hasSent = true
				}
				p.in <- ack("c2")
				p.in <- stopped("c1")
				if !hasSent {
					if o := b.wantResult(p, "c1"); o.Started != (len(before) > 0) {
						t.Errorf("got %+v", o)
					}
				}
				p.in <- ack("c1")
				b.wantExit()
				b.wantStarts(before...)
			})
		})
	}
}

func TestTheRunnerOfACallThatIsStoppedBeforeItsAssignmentNeverStartsIt(t *testing.T) {
	begun(t, theCall, func(b *bench, p *pipe) {
		for range 2 {
			for _, m := range []*wire.Message{stopped("c1"), assigned("c1")} {
				p.in <- m
				if o := b.wantResult(p, "c1"); o.Started || o.Reason != result.CancelRequested {
					t.Errorf("got %+v", o)
				}
			}
			p.Close()
			var said *wire.Serving
			if p, said = b.connect(); said.Taken != 1 || said.Held != 0 {
				t.Errorf("the hello says %+v", said)
			}
		}
		p.in <- ack("c1")
		b.wantExit()
		b.wantStarts()
	})
}

func TestAStopOfAnotherCallTakesNoPlaceInTheRunnerOfACall(t *testing.T) {
	begun(t, theCall, func(b *bench, p *pipe) {
		p.in <- stopped("c2")
		b.wantResult(p, "c2")
		p.in <- ack("c2")
		b.run(p, "c1")
		b.complete(p, "c1")
		b.wantEnd(p, "c1")
	})
}

// An operator that doesn't hear of the end of a call's runner sends on.
func TestTheRunnerOfACallEndsAtOnceWithItsAcknowledgement(t *testing.T) {
	begun(t, theCall, func(b *bench, p *pipe) {
		b.run(p, "c1")
		b.complete(p, "c1")
		p.in <- ack("c1")
		p.in <- assigned("c1")
		p.in <- begin(theCall)
		b.wantExit()
		b.wantLeft(p)
		b.wantStarts("c1")
	})
}

func TestOnlyTheRunnerOfASessionHasFiles(t *testing.T) {
	transfer := &wire.Message{Transfer: &wire.Transfer{
		ID: 1, Kind: wire.TransferRead, Path: "/f", Rules: spec.FileRules{ReadPaths: []string{"/"}},
	}}
	for name, owner := range owners {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, owner, func(b *bench) { b.Files = &supervisor.Executor{} })
				defer b.stop()
				p, _ := b.connect()
				p.in <- begin(owner)
				p.in <- transfer
				synctest.Wait()
				if owner.IsSession() {
					if m := <-p.out; m.State == nil || !m.State.Ended || m.State.ID != 1 {
						t.Errorf("got %+v", m)
					}
					return
				}
				b.wantLeft(p)
				if len(p.out) != 0 {
					t.Error("the runner of a call has files of a session")
				}
				p, _ = b.connect()
				b.run(p, "c1")
			})
		})
	}
}
