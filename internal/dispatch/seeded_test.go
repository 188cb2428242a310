package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

const (
	seededCalls      = 12
	seededConcurrent = 3
)

// seeded is a real runner of an owner, the operators that come and go, and what is recorded in the API.
type seeded struct {
	t      *testing.T
	random *rand.Rand
	owner  wire.Owner
	// uids are the calls that the owner has.
	uids     []string
	identity *dispatch.Identity
	key      string
	n        *network
	o        *operator
	over     chan error

	mu   sync.Mutex
	conn net.Conn
	// starts counts how often a call's command was started, finish ends those that run.
	starts map[string]int
	finish map[string]chan struct{}
	// recorded are the ends of calls, cancelled those that somebody cancelled.
	recorded  map[string]*wire.Result
	cancelled map[string]bool
}

func newSeeded(t *testing.T, seed uint64, owner wire.Owner, uids ...string) *seeded {
	w := &seeded{
		t: t, random: rand.New(rand.NewPCG(seed, 11)), owner: owner, uids: uids, identity: newIdentity(t), over: make(chan error, 1),
		starts: map[string]int{}, finish: map[string]chan struct{}{}, recorded: map[string]*wire.Result{}, cancelled: map[string]bool{},
	}
	w.lead()
	env := podEnv(w.o, "job")
	env[wire.EnvCall], env[wire.EnvPool] = "", "env"
	config := runnerOf(t, env)
	config.DialContext = w.dial
	s := &supervisor.Supervisor{
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
			return config.Dial(ctx, serving)
		},
		SaveCopy: func(*wire.Result) {},
		Begin:    func(*wire.Begin) supervisor.ExecuteFunc { return w.execute },
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { w.over <- s.Run(ctx, ctx) }()
	w.key = w.o.event(t).KeyHash()
	return w
}

// lead makes another operator the one that runners reach. It knows nothing.
func (w *seeded) lead() {
	n := newNetwork()
	o := serveOn(w.t, w.identity, n, dispatch.Limits{})
	w.mu.Lock()
	w.n, w.o = n, o
	w.mu.Unlock()
	w.cut()
}

func (w *seeded) dial(context.Context, string, string) (net.Conn, error) {
	w.mu.Lock()
	n := w.n
	w.mu.Unlock()
	conn, err := n.from("10.1.0.1")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = conn
	return conn, err
}

// cut ends the runner's connection.
func (w *seeded) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil {
		w.conn.Close()
	}
}

// execute is a command that runs until it is told to end.
func (w *seeded) execute(ctx context.Context, a *wire.Assignment) *wire.Result {
	finish := make(chan struct{})
	w.mu.Lock()
	w.starts[a.CallUID]++
	w.finish[a.CallUID] = finish
	w.mu.Unlock()
	r := resultIn(a.CallUID, "")
	select {
	case <-finish:
	case <-ctx.Done():
		r.Outcome = result.Outcome{Reason: result.CancelRequested, Started: true}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.finish, a.CallUID)
	return r
}

func (w *seeded) started(uid string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts[uid]
}

// finishOne has a command end, if one runs.
func (w *seeded) finishOne() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range w.uids {
		if finish := w.finish[uid]; finish != nil {
			close(finish)
			delete(w.finish, uid)
			return
		}
	}
}

// pass does for one call what a reconciler does. lags says that its cache doesn't show the call's end.
func (w *seeded) pass(uid string, lags bool) {
	s := w.o.hub.RunnerByKey(w.key)
	if s == nil {
		return
	}
	begin := beginOf(w.owner)
	if w.owner.IsSession() {
		begin.MaxConcurrentCalls = seededConcurrent
	}
	if err := s.Begin(begin); err != nil {
		return
	}
	held, isHeld := s.HeldCall(uid)
	r := w.o.hub.Result(w.key, uid)
	switch {
	case w.recorded[uid] != nil && !lags && !isHeld && w.owner.IsCall():
		s.Refuse("the call has ended")
	case w.recorded[uid] != nil && !lags:
		_ = s.Ack(uid)
	case isHeld && held.State == dispatch.Known && w.recorded[uid] == nil:
		w.t.Errorf("%s was acknowledged, and nothing is recorded", uid)
	case r != nil:
		w.record(uid, r)
		if w.random.IntN(4) > 0 {
			_ = s.Ack(uid)
		} else {
			s.Record(uid)
		}
	case w.cancelled[uid] && w.owner.IsCall() && s.Taken() == 0:
		// The runner says for certain that it wasn't given its only call.
		w.record(uid, &wire.Result{CallUID: uid, Outcome: result.Outcome{Reason: result.CancelRequested}})
		s.Refuse("the call was cancelled")
	case w.cancelled[uid] && isHeld:
		_ = s.Stop(uid, result.CancelRequested)
	case w.cancelled[uid]:
		// The hello says for certain that it wasn't handed over, unless its end is recorded, which is read past the cache.
		if w.recorded[uid] == nil {
			w.record(uid, &wire.Result{CallUID: uid, Outcome: result.Outcome{Reason: result.CancelRequested}})
		}
	case !isHeld && w.running(s) < seededConcurrent:
		if err := s.Assign(w.owner.UID, assignmentOf(uid)); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, dispatch.ErrNoRoom) {
			w.t.Errorf("assign %s: %v", uid, err)
		}
	}
}

func (w *seeded) running(s *dispatch.Runner) (n int) {
	for _, call := range s.HeldCalls() {
		if call.State == dispatch.Assigned || call.State == dispatch.Running {
			n++
		}
	}
	return n
}

// record writes a call's end, once.
func (w *seeded) record(uid string, r *wire.Result) {
	if before := w.recorded[uid]; before != nil {
		if before.Outcome.Started != r.Outcome.Started {
			w.t.Errorf("%s ended in two ways: %+v, %+v", uid, before.Outcome, r.Outcome)
		}
		return
	}
	if r.Outcome.Started != (w.started(uid) > 0) {
		w.t.Errorf("%s started %d times; its result says %t", uid, w.started(uid), r.Outcome.Started)
	}
	if r.Outcome.Started && r.Decision != "sealed-"+uid {
		w.t.Errorf("%s comes back with decision %q", uid, r.Decision)
	}
	w.recorded[uid] = r
}

// check compares what the operator says with what the runner did.
func (w *seeded) check() {
	w.o.news()
	accepted, known := w.o.hub.Accepted(w.key)
	for _, uid := range w.uids {
		starts := w.started(uid)
		if starts > 1 {
			w.t.Fatalf("%s was started %d times", uid, starts)
		}
		has := slices.ContainsFunc(accepted, func(call dispatch.HeldCall) bool { return call.UID == uid })
		if known && starts > 0 && w.recorded[uid] == nil && !has {
			w.t.Fatalf("%s runs or has run, and the operator has only %s", uid, states(accepted))
		}
	}
}

func (w *seeded) step() {
	uid := w.uids[w.random.IntN(len(w.uids))]
	switch w.random.IntN(16) {
	case 0:
		w.cut()
	case 1:
		w.lead()
	case 2:
		w.cancelled[uid] = true
	case 3, 4:
		time.Sleep(time.Duration(w.random.IntN(2000)) * time.Millisecond)
	case 5, 6, 7:
		w.finishOne()
	case 8:
		w.pass(uid, true)
	case 9:
		// The connection breaks while it is used.
		w.pass(uid, false)
		w.cut()
	default:
		w.pass(uid, false)
	}
}

// run takes steps in any order, and then lets everything come to its end.
func (w *seeded) run() {
	for range 150 {
		w.step()
		// Otherwise the next step comes before this one has had its effect.
		if w.random.IntN(2) == 0 {
			w.check()
		}
	}
	for range 200 {
		time.Sleep(time.Second)
		for _, uid := range w.uids {
			w.pass(uid, false)
		}
		w.finishOne()
		w.check()
	}
}

// Whatever breaks at whatever moment: a command starts at most once, every call ends by one result, and what a lost
// runner may have started is known.
func TestCallsOfASessionRunAtMostOnceWhateverBreaks(t *testing.T) {
	var uids []string
	for i := range seededCalls {
		uids = append(uids, fmt.Sprint("c", i))
	}
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w := newSeeded(t, seed, theSession, uids...)
			w.run()
			s := w.o.hub.RunnerByKey(w.key)
			if len(w.recorded) != seededCalls || s == nil || len(s.HeldCalls()) != 0 {
				t.Fatalf("seed %d: %d of %d calls have ended", seed, len(w.recorded), seededCalls)
			}
			if err := s.End("EndRequested"); err != nil {
				t.Fatal(err)
			}
			if err := <-w.over; err != nil {
				t.Errorf("seed %d: the runner ended with %v", seed, err)
			}
		})
	}
}

// The same holds for the only call of a runner, which then exits by itself: it is refused only when nothing was started.
func TestTheCallOfARunnerRunsAtMostOnceWhateverBreaks(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w := newSeeded(t, seed, callC1, "c1")
			w.run()
			r := w.recorded["c1"]
			if r == nil || len(w.over) == 0 {
				t.Fatalf("seed %d: the call has ended with %+v, and the runner: %t", seed, r, len(w.over) > 0)
			}
			if err := <-w.over; errors.Is(err, supervisor.ErrRefused) == r.Outcome.Started || err != nil && r.Outcome.Started {
				t.Errorf("seed %d: the runner ended with %v, after %+v", seed, err, r.Outcome)
			}
		})
	}
}
