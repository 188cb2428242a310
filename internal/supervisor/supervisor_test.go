package supervisor_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe is a connection whose other end is the test.
type pipe struct {
	in, out chan *wire.Message
	closed  chan struct{}
	once    sync.Once
}

func newPipe() *pipe {
	return &pipe{in: make(chan *wire.Message, 8), out: make(chan *wire.Message, 8), closed: make(chan struct{})}
}

func (p *pipe) Send(m *wire.Message) error {
	select {
	case <-p.closed:
		return io.ErrClosedPipe
	case p.out <- m:
		return nil
	}
}

func (p *pipe) Receive() (*wire.Message, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *pipe) Close() { p.once.Do(func() { close(p.closed) }) }

// bench is a supervisor whose operator and process are the test.
type bench struct {
	*supervisor.Supervisor
	dials    chan *pipe
	calls    chan string
	starts   int
	finish   chan struct{}
	left     *wire.Result
	ended    chan error
	stopWith context.CancelFunc
}

func start(t *testing.T) *bench {
	t.Helper()
	b := &bench{dials: make(chan *pipe), calls: make(chan string, 8), finish: make(chan struct{}), ended: make(chan error, 1)}
	b.Supervisor = &supervisor.Supervisor{
		Dial: func(_ context.Context, call dial.Call) (supervisor.Conn, error) {
			p, ok := <-b.dials
			if !ok || p == nil {
				return nil, errors.New("nobody listens")
			}
			b.calls <- call.UID
			return p, nil
		},
		Execute: func(ctx context.Context, a *wire.Assignment) *wire.Result {
			b.starts++
			r := &wire.Result{CallUID: a.CallUID, Outcome: result.Outcome{Reason: result.Completed}}
			select {
			case <-b.finish:
			case <-ctx.Done():
				r.Outcome.Reason = result.CancelRequested
			}
			return r
		},
		Leave: func(r *wire.Result) { b.left = r },
	}
	terminate, cancel := context.WithCancel(context.Background())
	b.stopWith = cancel
	go func() { b.ended <- b.Run(context.Background(), terminate) }()
	return b
}

func (b *bench) connect() *pipe {
	p := newPipe()
	b.dials <- p
	return p
}

func assign(uid string) *wire.Message { return &wire.Message{Assign: &wire.Assignment{CallUID: uid}} }

func TestOneCallToItsAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		close(b.finish)
		if m := <-p.out; m.Result == nil || m.Result.CallUID != "c1" {
			t.Fatalf("got %+v", m)
		}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		if b.left == nil {
			t.Error("no copy was left behind")
		}
		b.stopWith()
	})
}

func TestAResultIsKeptUntilSomebodyTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		if uid := <-b.calls; uid != "" {
			t.Errorf("the first hello names call %q", uid)
		}
		p.in <- assign("c1")
		synctest.Wait()
		p.Close()
		close(b.finish)
		b.dials <- nil
		b.dials <- nil
		for range 3 {
			p = b.connect()
			if uid := <-b.calls; uid != "c1" {
				t.Errorf("a later hello names call %q", uid)
			}
			if m := <-p.out; m.Result == nil {
				t.Fatalf("got %+v; want the result again", m)
			}
			p.Close()
		}
		p = b.connect()
		<-p.out
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		if err := <-b.ended; err != nil || b.starts != 1 {
			t.Errorf("ended with %v after %d starts", err, b.starts)
		}
		b.stopWith()
	})
}

func TestACopyIsLeftAlsoWhenNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		p.Close()
		close(b.finish)
		synctest.Wait()
		if b.left == nil {
			t.Error("no copy was left behind")
		}
		p = b.connect()
		<-p.out
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		<-b.ended
		b.stopWith()
	})
}

func TestASecondAssignmentStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		p.in <- assign("c1")
		p.in <- assign("c2")
		synctest.Wait()
		close(b.finish)
		if m := <-p.out; m.Result.CallUID != "c1" {
			t.Errorf("the result is of %q", m.Result.CallUID)
		}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c2"}}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		<-b.ended
		if b.starts != 1 {
			t.Errorf("%d starts", b.starts)
		}
		b.stopWith()
	})
}

func TestAnEarlyAcknowledgementIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- &wire.Message{Ack: &wire.Ack{}}
		p.in <- assign("c1")
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		synctest.Wait()
		close(b.finish)
		if m := <-p.out; m.Result == nil {
			t.Fatalf("got %+v", m)
		}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		<-b.ended
		b.stopWith()
	})
}

func TestCancelStopsTheCommandAndIsForThisCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		p.in <- &wire.Message{Cancel: &wire.Cancel{CallUID: "c2"}}
		synctest.Wait()
		if len(p.out) != 0 {
			t.Fatal("another call's cancel stopped this one")
		}
		p.in <- &wire.Message{Cancel: &wire.Cancel{CallUID: "c1"}}
		if m := <-p.out; m.Result.Outcome.Reason != result.CancelRequested {
			t.Errorf("the reason is %s", m.Result.Outcome.Reason)
		}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		<-b.ended
		b.stopWith()
	})
}

func TestARefusalEndsTheRunnerAndItsCommand(t *testing.T) {
	for _, running := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			p := b.connect()
			if running {
				p.in <- assign("c1")
				synctest.Wait()
			}
			p.in <- &wire.Message{Refuse: &wire.Refusal{Reason: "gone"}}
			if err := <-b.ended; !errors.Is(err, supervisor.ErrRefused) {
				t.Errorf("running %v: ended with %v", running, err)
			}
			b.stopWith()
		})
	}
}

func TestTheEndOfThePodStopsTheCommandAndTheResultIsStillSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		b.stopWith()
		if m := <-p.out; m.Result == nil {
			t.Fatalf("got %+v", m)
		}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		if err := <-b.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestTheEndOfThePodWhileTheOperatorIsAwayStopsTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		p.Close()
		b.stopWith()
		time.Sleep(5 * time.Second)
		p = b.connect()
		if m := <-p.out; m.Result == nil || m.Result.Outcome.Reason == result.Completed {
			t.Fatalf("got %+v", m)
		}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		<-b.ended
	})
}

// What waits for a call doesn't wait for ever when the operator is gone; what has one keeps its result for as long as
// it takes.
func TestAWaitingRunnerEndsWhenNoOperatorIsFound(t *testing.T) {
	const patience = 15 * time.Minute
	for name, test := range map[string]struct {
		patience time.Duration
		assigned bool
		ends     bool
	}{
		"it waits for a call":  {patience, false, true},
		"it has a call":        {patience, true, false},
		"it has no such bound": {0, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			b.Patience = test.patience
			p := b.connect()
			time.Sleep(24 * time.Hour)
			if test.assigned {
				p.in <- assign("c1")
				synctest.Wait()
			}
			p.Close()
			lost := time.Now()
			for len(b.ended) == 0 && time.Since(lost) < 10*patience {
				select {
				case b.dials <- nil:
				case <-time.After(time.Minute):
				}
				synctest.Wait()
			}
			if ended := len(b.ended) == 1; ended != test.ends {
				t.Errorf("%s: the runner ended: %t, %s after it lost the operator", name, ended, time.Since(lost))
			}
			if after := time.Since(lost); test.ends && (after < patience || after > patience+time.Minute) {
				t.Errorf("%s: the runner ended after %s", name, after)
			}
			if test.ends {
				if err := <-b.ended; !errors.Is(err, supervisor.ErrAlone) {
					t.Errorf("ended with %v", err)
				}
			} else {
				p = b.connect()
				p.in <- &wire.Message{Refuse: &wire.Refusal{Reason: "the test is over"}}
				<-b.ended
			}
			b.stopWith()
		})
	}
}

func TestTheEndOfThePodBeforeAnyCallEndsTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		b.connect()
		synctest.Wait()
		b.stopWith()
		if err := <-b.ended; err == nil {
			t.Error("ended well without having done anything")
		}
	})
}
