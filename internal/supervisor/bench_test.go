package supervisor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/supervisor"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("toolcall.dev/operator/internal/runner/sandbox/kernel.worker.serve"))
}

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

// bench is a supervisor whose operator and commands are the test.
type bench struct {
	*supervisor.Supervisor
	t *testing.T
	// owner is what the runner begins with.
	owner wire.Begin
	dials chan *pipe
	// hellos are what the runner says that it has; nil while it waits.
	hellos chan *wire.Serving
	ended  chan error
	// terminate tells the pod to end, lose does with a cause; cancel ends the process.
	terminate, cancel context.CancelFunc
	lose              context.CancelCauseFunc

	// Read them when the runner is idle or has ended.
	lines []string
	saved []*wire.Result

	mu sync.Mutex
	// starts are the UIDs in the order in which they started, running how they are ended.
	starts  []string
	running map[string]chan result.Outcome
}

func start(t *testing.T, owner wire.Begin, changes ...func(*bench)) *bench {
	t.Helper()
	b := &bench{
		t: t, owner: owner, dials: make(chan *pipe), hellos: make(chan *wire.Serving, 1), ended: make(chan error, 1),
		running: map[string]chan result.Outcome{},
	}
	var last *pipe
	b.Supervisor = &supervisor.Supervisor{
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
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
			b.hellos <- serving
			return last, nil
		},
		Begin:    func(*wire.Begin) supervisor.ExecuteFunc { return b.execute },
		SaveCopy: func(r *wire.Result) { b.saved = append(b.saved, r) },
		Log:      func(line string) { b.lines = append(b.lines, line) },
	}
	for _, change := range changes {
		change(b)
	}
	ctx, cancel := context.WithCancel(context.Background())
	terminate, lose := context.WithCancelCause(context.Background())
	b.cancel, b.lose, b.terminate = cancel, lose, func() { lose(nil) }
	go func() { b.ended <- b.Run(ctx, terminate) }()
	return b
}

// stop ends what is left of the bench.
func (b *bench) stop() {
	b.cancel()
	b.terminate()
	synctest.Wait()
}

// execute is a command that runs until the test ends it, or until it is stopped.
func (b *bench) execute(ctx context.Context, a *wire.Assignment) *wire.Result {
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
	b.mu.Unlock()
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
func (b *bench) finish(uid string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[uid] == nil {
		b.t.Fatalf("%s doesn't run", uid)
	}
	b.running[uid] <- result.Outcome{Reason: result.Completed, ExitCode: result.Exit(0)}
}

func (b *bench) started() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.starts)
}

func (b *bench) wantStarts(want ...string) {
	b.t.Helper()
	if got := b.started(); !slices.Equal(got, want) {
		b.t.Errorf("started %v; want %v", got, want)
	}
}

// connect takes the runner's next connection, and the calls that follow the hello.
func (b *bench) connect() (*pipe, *wire.Serving) {
	b.t.Helper()
	p := newPipe()
	b.dials <- p
	said := <-b.hellos
	if said == nil {
		return p, nil
	}
	if said.Owner != b.owner.Owner || said.Held != len(said.Calls) {
		b.t.Errorf("the hello says %+v", said)
	}
	for _, held := range said.Calls {
		if m := <-p.out; m.Held == nil || *m.Held != held {
			b.t.Errorf("after the hello comes %+v; want %+v", m, held)
		}
	}
	return p, said
}

// again is connect for a runner that has one call, c1. It takes the result when there is one.
func (b *bench) again(state wire.CallState) *pipe {
	b.t.Helper()
	p, said := b.connect()
	if said == nil || len(said.Calls) != 1 || said.Calls[0].UID != "c1" || said.Calls[0].State != state {
		b.t.Fatalf("the hello says %+v; want that c1 is %s", said, state)
	}
	if state == wire.Ended {
		b.wantResult(p, "c1")
	}
	return p
}

// The two kinds of owners that a runner can begin with. Both have the call c1.
var (
	theCall    = *wire.BeginCall("c1", "name-c1")
	theSession = wire.Begin{
		Owner: wire.Owner{Kind: wire.KindSession, UID: "s1", Name: "session", Incarnation: 3}, MaxCalls: 100, MaxConcurrentCalls: 2,
	}
	owners = map[string]wire.Begin{"a call": theCall, "a session": theSession}
)

// begun runs a test with a runner that has begun.
func begun(t *testing.T, owner wire.Begin, test func(b *bench, p *pipe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, owner)
		p, said := b.connect()
		if said != nil {
			t.Errorf("a runner that waits has %+v", said)
		}
		p.in <- begin(owner)
		defer b.stop()
		test(b, p)
	})
}

// ofBoth runs a test with a runner of each kind that has begun.
func ofBoth(t *testing.T, test func(b *bench, p *pipe)) {
	t.Helper()
	for name, owner := range owners {
		t.Run(name, func(t *testing.T) { begun(t, owner, test) })
	}
}

// waiting runs a test with a connected runner that must not begin.
func waiting(t *testing.T, test func(b *bench, p *pipe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, theCall, func(b *bench) {
			b.Begin = func(*wire.Begin) supervisor.ExecuteFunc { t.Error("begun"); return b.execute }
		})
		p, _ := b.connect()
		defer b.stop()
		test(b, p)
	})
}

func begin(b wire.Begin) *wire.Message { return &wire.Message{Begin: &b} }

func assigned(uid string, changes ...func(*wire.Assignment)) *wire.Message {
	a := &wire.Assignment{CallUID: uid, CallName: "name-" + uid, Decision: "sealed-" + uid}
	for _, change := range changes {
		change(a)
	}
	return &wire.Message{Assign: a}
}

func stopped(uid string) *wire.Message {
	return &wire.Message{Stop: &wire.Stop{CallUID: uid, Reason: result.CancelRequested}}
}

func ack(uid string) *wire.Message { return &wire.Message{Ack: &wire.Ack{CallUID: uid}} }

func ended(reason string) *wire.Message { return &wire.Message{End: &wire.End{Reason: reason}} }

func refuse(final bool) *wire.Message {
	return &wire.Message{Refuse: &wire.Refusal{Reason: "for a reason", Final: final}}
}

// run starts a call, and waits until it runs.
func (b *bench) run(p *pipe, uid string, changes ...func(*wire.Assignment)) {
	b.t.Helper()
	p.in <- assigned(uid, changes...)
	synctest.Wait()
}

// complete ends a command, and takes its result.
func (b *bench) complete(p *pipe, uid string) {
	b.t.Helper()
	b.finish(uid)
	if o := b.wantResult(p, uid); o.Reason != result.Completed || !o.Started {
		b.t.Errorf("%s: got %+v", uid, o)
	}
}

func (b *bench) wantRunning(uid string) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[uid] == nil {
		b.t.Errorf("%s doesn't run", uid)
	}
}

// wantResult returns the outcome.
func (b *bench) wantResult(p *pipe, uid string) result.Outcome {
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

func (b *bench) wantKnown(p *pipe, uid string) {
	b.t.Helper()
	if m := <-p.out; m.Known == nil || m.Known.CallUID != uid {
		b.t.Errorf("got %+v; want that %s is known", m, uid)
	}
}

// wantLeft says that the runner has left the connection.
func (b *bench) wantLeft(p *pipe) {
	b.t.Helper()
	synctest.Wait()
	if !p.isClosed() {
		b.t.Error("the runner stays")
	}
}

// wantEnd acknowledges the last result, with which a call's runner ends. A session has to be ended.
func (b *bench) wantEnd(p *pipe, uid string) {
	b.t.Helper()
	p.in <- ack(uid)
	if b.owner.IsSession() {
		p.in <- ended("EndRequested")
	}
	b.wantExit()
}

// wantExit waits for the runner's end with all acknowledged.
func (b *bench) wantExit() {
	b.t.Helper()
	if err := <-b.ended; err != nil {
		b.t.Errorf("ended with %v", err)
	}
}

// wantSaved says that the copy of a call's result was saved, once. There is none of a session's results.
func (b *bench) wantSaved(uid string) {
	b.t.Helper()
	synctest.Wait()
	switch {
	case b.owner.IsSession() && len(b.saved) > 0:
		b.t.Errorf("copies of a session's results were saved: %+v", b.saved)
	case b.owner.IsCall() && (len(b.saved) != 1 || b.saved[0].CallUID != uid):
		b.t.Errorf("saved were %+v", b.saved)
	}
}

// wantRefused waits for the end of a runner that nobody wants.
func (b *bench) wantRefused() {
	b.t.Helper()
	if err := <-b.ended; !errors.Is(err, supervisor.ErrRefused) || !strings.Contains(err.Error(), "for a reason") {
		b.t.Errorf("ended with %v", err)
	}
}

// wantUnrecorded says that the log names the call as one whose result nobody has taken.
func (b *bench) wantUnrecorded(uid string) {
	b.t.Helper()
	if last := b.lines[len(b.lines)-1]; !strings.Contains(last, uid) || !strings.Contains(last, "not recorded") {
		b.t.Errorf("logged %q", last)
	}
}
