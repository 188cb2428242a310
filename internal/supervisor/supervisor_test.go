package supervisor_test

import (
	"bytes"
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
	if m.Part != nil {
		// The sender uses its memory again.
		part := *m.Part
		part.Payload = bytes.Clone(part.Payload)
		m = &wire.Message{Part: &part}
	}
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

func (p *pipe) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// bench is a supervisor whose operator and process are the test.
type bench struct {
	*supervisor.Supervisor
	dials  chan *pipe
	calls  chan string
	starts []string
	finish chan struct{}
	saved  *wire.Result
	lines  []string
	ended  chan error
	// terminate tells the pod to end; cancel ends the process.
	terminate, cancel context.CancelFunc
}

func start(t *testing.T, changes ...func(*bench)) *bench {
	t.Helper()
	b := &bench{dials: make(chan *pipe), calls: make(chan string, 8), finish: make(chan struct{}), ended: make(chan error, 1)}
	var last *pipe
	b.Supervisor = &supervisor.Supervisor{
		Dial: func(ctx context.Context, call dial.Call) (supervisor.Conn, error) {
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
			b.calls <- call.UID
			return last, nil
		},
		Execute: func(ctx context.Context, a *wire.Assignment) *wire.Result {
			b.starts = append(b.starts, a.CallUID)
			r := &wire.Result{CallUID: a.CallUID, Outcome: result.Outcome{Reason: result.Completed}}
			select {
			case <-b.finish:
			case <-ctx.Done():
				r.Outcome.Reason = result.CancelRequested
			}
			return r
		},
		SaveCopy: func(r *wire.Result) { b.saved = r },
		Log:      func(line string) { b.lines = append(b.lines, line) },
	}
	for _, change := range changes {
		change(b)
	}
	var ctx, terminate context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	terminate, b.terminate = context.WithCancel(context.Background())
	go func() { b.ended <- b.Run(ctx, terminate) }()
	return b
}

// stop ends what is left of the bench.
func (b *bench) stop() {
	b.cancel()
	b.terminate()
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
		if b.saved == nil {
			t.Error("no copy was saved")
		}
		b.stop()
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
		if err := <-b.ended; err != nil || len(b.starts) != 1 {
			t.Errorf("ended with %v after starts of %v", err, b.starts)
		}
		b.stop()
	})
}

func TestACopyIsSavedAlsoWhenNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		p.Close()
		close(b.finish)
		synctest.Wait()
		if b.saved == nil {
			t.Error("no copy was saved")
		}
		p = b.connect()
		<-p.out
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		<-b.ended
		b.stop()
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
		if len(b.starts) != 1 {
			t.Errorf("started %v", b.starts)
		}
		b.stop()
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
		b.stop()
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
		b.stop()
	})
}

func TestTheEndOfThePodStopsTheCommandAndTheResultIsStillSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		p := b.connect()
		p.in <- assign("c1")
		synctest.Wait()
		b.terminate()
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
		b.terminate()
		time.Sleep(5 * time.Second)
		p = b.connect()
		if m := <-p.out; m.Result == nil || m.Result.Outcome.Reason == result.Completed {
			t.Fatalf("got %+v", m)
		}
		p.in <- &wire.Message{Ack: &wire.Ack{CallUID: "c1"}}
		<-b.ended
	})
}

func TestTheEndOfThePodBeforeAnyCallEndsTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		b.connect()
		synctest.Wait()
		b.terminate()
		if err := <-b.ended; err == nil {
			t.Error("ended well without having done anything")
		}
	})
}
