package supervisor_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/supervisor"
)

// record is what an operator has written about a call. It outlives connections; all else that an operator knows doesn't.
type record struct {
	uid        string
	background bool
	// takes is how long the command runs.
	takes time.Duration
	// result is the recorded one, acked that the runner was told so.
	result *wire.Result
	acked  bool
}

// seeded is one run of the test: an operator that does what it may in any order, and loses the connection at any point.
type seeded struct {
	*bench
	rng     *rand.Rand
	records []*record
	seen    map[string]int

	mu     sync.Mutex
	counts map[string]int

	// Of one connection.
	pipe *pipe
	// has is what the runner has, as far as it has said or been told since its hello.
	has map[string]wire.CallState
}

// command is one of the test.
func (s *seeded) command(ctx context.Context, a *wire.Assignment) *wire.Result {
	r := &wire.Result{CallUID: a.CallUID}
	rec := s.find(a.CallUID)
	if cause := context.Cause(ctx); cause != nil {
		why := runner.StopCause(cause)
		r.Outcome = result.Outcome{Reason: why.Reason, Message: why.Message}
		return r
	}
	s.mu.Lock()
	s.counts[rec.uid]++
	s.mu.Unlock()
	r.Outcome = result.Outcome{Reason: result.Completed, Started: true, ExitCode: result.Exit(0), StartTime: time.Now()}
	select {
	case <-time.After(rec.takes):
	case <-ctx.Done():
		r.Outcome.Reason, r.Outcome.ExitCode = runner.StopCause(context.Cause(ctx)).Reason, nil
	}
	r.Outcome.DurationMS = time.Since(r.Outcome.StartTime).Milliseconds()
	return r
}

func (s *seeded) starts(uid string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[uid]
}

func (s *seeded) find(uid string) *record {
	for _, rec := range s.records {
		if rec.uid == uid {
			return rec
		}
	}
	s.t.Fatalf("there is no call %q", uid)
	return nil
}

// dial is the operator's answer to the runner, nil for none. It says false when the runner has exited.
func (s *seeded) dial(p *pipe) bool {
	select {
	case s.dials <- p:
		return true
	case err := <-s.ended:
		s.ended <- err
		if !s.mayExit() {
			s.t.Errorf("the runner has exited: %v", err)
		}
		return false
	}
}

// mayExit says that a call's runner was told that the result is recorded. That may be lost, or come true at any time.
func (s *seeded) mayExit() bool { return s.owner.IsCall() && s.records[0].acked }

// reconnect waits for the hello, and for the calls that follow it. It says false when the runner has exited.
func (s *seeded) reconnect() bool {
	p := newPipe()
	if !s.dial(p) {
		return false
	}
	said := <-s.hellos
	s.pipe, s.has = p, map[string]wire.CallState{}
	if said == nil {
		s.send(begin(s.owner))
		return true
	}
	if said.Owner != s.owner.Owner {
		s.t.Errorf("the hello says %+v", said)
	}
	if s.owner.IsCall() {
		// It was lost: the runner is here.
		s.records[0].acked = false
	}
	for _, held := range said.Calls {
		rec := s.find(held.UID)
		if held.Decision != "sealed-"+held.UID || s.starts(held.UID) == 0 && held.State == wire.Running && rec.result != nil {
			s.t.Errorf("the hello says %+v", held)
		}
		s.has[held.UID] = held.State
		if m := <-p.out; m.Held == nil || *m.Held != held {
			s.t.Errorf("after the hello comes %+v", m)
		}
	}
	return true
}

// mayAssign says what a good operator looks at before it assigns a call.
func (s *seeded) mayAssign(rec *record) bool {
	if _, has := s.has[rec.uid]; has || rec.result != nil {
		return true // It is answered.
	}
	running, unacknowledged := 0, 0
	for uid, state := range s.has {
		switch {
		case state == wire.Ended:
			unacknowledged++
		case s.find(uid).background == rec.background:
			running++
		}
	}
	limit := s.owner.MaxConcurrentCalls
	if rec.background {
		limit = wire.MaxBackgroundCalls
	}
	return running < limit && unacknowledged < wire.MaxUnacknowledged
}

func (s *seeded) assign(rec *record) {
	if !s.mayAssign(rec) {
		return
	}
	if rec.result != nil && !rec.acked {
		s.seen["assigned with a recorded result"]++
	}
	if _, has := s.has[rec.uid]; !has && rec.result == nil {
		s.has[rec.uid] = wire.Running
	}
	s.send(assigned(rec.uid, func(a *wire.Assignment) { a.Background = rec.background }))
}

func (s *seeded) send(m *wire.Message) {
	select {
	case s.pipe.in <- m:
	case <-s.pipe.closed:
		if !s.mayExit() {
			s.t.Error("the runner left a good operator")
		}
	}
}

// read takes one message if there is one.
func (s *seeded) read() bool {
	var m *wire.Message
	select {
	case m = <-s.pipe.out:
	default:
		return false
	}
	switch {
	case m.Known != nil:
		s.seen["known"]++
		if rec := s.find(m.Known.CallUID); !rec.acked {
			s.t.Errorf("%s is known, and its result was never acknowledged", rec.uid)
		}
	case m.Result != nil:
		s.take(m.Result)
	}
	return true
}

// take records a result. One that comes again is the same.
func (s *seeded) take(r *wire.Result) {
	rec := s.find(r.CallUID)
	if _, has := s.has[rec.uid]; has || r.Outcome.Started {
		s.has[rec.uid] = wire.Ended
	}
	switch {
	case r.Outcome.Started != (s.starts(rec.uid) == 1):
		s.t.Errorf("%s was started %d times, and its result says %+v", rec.uid, s.starts(rec.uid), r.Outcome)
	case r.Outcome.Started && r.Decision != "sealed-"+rec.uid:
		s.t.Errorf("the result of %s gives back %q", rec.uid, r.Decision)
	case rec.result == nil:
		rec.result = r
	case rec.result.Outcome.Started != r.Outcome.Started || rec.result.Outcome.DurationMS != r.Outcome.DurationMS:
		s.t.Errorf("the result of %s was %+v and is %+v", rec.uid, rec.result.Outcome, r.Outcome)
	default:
		s.seen["result came again"]++
	}
	if !r.Outcome.Started {
		s.seen["never started"]++
	}
}

// acknowledge tells the runner of a result that is recorded.
func (s *seeded) acknowledge(rec *record) {
	if rec.result == nil {
		return
	}
	rec.acked = true
	s.send(ack(rec.uid))
	if s.has[rec.uid] == wire.Ended {
		delete(s.has, rec.uid)
	}
}

// act does one of the things that an operator may do. It reports false when the connection is lost.
func (s *seeded) act() bool {
	rec := s.records[s.rng.IntN(len(s.records))]
	switch n := s.rng.IntN(20); {
	case n < 6:
		s.assign(rec)
	case n < 7:
		s.send(stopped(rec.uid))
	case n < 10:
		s.read()
	case n < 13:
		s.acknowledge(rec)
	case n < 15:
		time.Sleep(time.Duration(s.rng.IntN(50)) * time.Millisecond)
	case n < 18:
		synctest.Wait()
	default:
		if len(s.pipe.in) > 0 {
			s.seen["lost to the runner"]++
		}
		if len(s.pipe.out) > 0 {
			s.seen["lost to the operator"]++
		}
		s.pipe.Close()
		return false
	}
	return true
}

// settle ends every call on one connection, and the session.
func (s *seeded) settle() {
	for _, rec := range s.records {
		for rec.result == nil || !rec.acked {
			if rec.result == nil {
				s.assign(rec)
			}
			time.Sleep(100 * time.Millisecond)
			for s.read() {
				synctest.Wait()
			}
			for _, other := range s.records {
				s.acknowledge(other)
			}
			synctest.Wait()
		}
	}
	if s.owner.IsSession() {
		s.send(ended("EndRequested"))
	}
}

// story has the connection lost a dozen times, unless the runner exits before.
func (s *seeded) story() {
	for range 12 {
		if !s.reconnect() {
			return
		}
		for s.act() {
			if s.pipe.isClosed() {
				if !s.mayExit() {
					s.t.Fatal("the runner left a good operator")
				}
				break
			}
		}
		if s.rng.IntN(3) == 0 && !s.dial(nil) {
			return
		}
	}
	if s.reconnect() {
		s.settle()
	}
}

// callsOf are the calls of a story: the one of a call's runner, or a dozen.
func callsOf(owner *wire.Begin, rng *rand.Rand) (records []*record) {
	for i := range 12 {
		rec := &record{uid: fmt.Sprintf("c%d", i), background: rng.IntN(6) == 0, takes: time.Duration(rng.IntN(60)) * time.Millisecond}
		if owner.IsCall() {
			rec.uid, rec.background = owner.UID, false
			return []*record{rec}
		}
		records = append(records, rec)
	}
	return records
}

func runSeeded(t *testing.T, seed uint64, owner wire.Begin, seen map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	if owner.IsSession() {
		owner.MaxCalls, owner.MaxConcurrentCalls = 1000, 1+rng.IntN(3)
	}
	s := &seeded{rng: rng, seen: seen, counts: map[string]int{}, records: callsOf(&owner, rng)}
	s.bench = start(t, owner, func(b *bench) {
		b.Begin = func(*wire.Begin) supervisor.ExecuteFunc { return s.command }
	})
	defer s.stop()
	s.story()
	s.wantExit()
	for _, rec := range s.records {
		n := s.starts(rec.uid)
		if n > 1 || rec.result.Outcome.Started != (n == 1) {
			t.Errorf("%s was started %d times, and its record says %+v", rec.uid, n, rec.result.Outcome)
		}
		if len(s.saved) > 1 || owner.IsCall() && n == 1 && len(s.saved) == 0 {
			t.Errorf("%s was started %d times, and %d copies of results are saved", rec.uid, n, len(s.saved))
		}
	}
}

// Whatever is lost, a UID is started at most once, one that is stopped before never, and no result is lost before its
// acknowledgement.
func TestARunnerConvergesWhereverItsConnectionIsLost(t *testing.T) {
	for kind, owner := range owners {
		seen := map[string]int{}
		for seed := range uint64(1000) {
			t.Run(fmt.Sprint(kind, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { runSeeded(t, seed, owner, seen) })
			})
			if t.Failed() {
				return
			}
		}
		t.Log(kind, slices.Sorted(maps.Keys(seen)), seen)
		for _, what := range []string{"never started", "result came again", "lost to the runner", "lost to the operator", "assigned with a recorded result"} {
			if seen[what] < 100 {
				t.Errorf("%s: %q was seen %d times", kind, what, seen[what])
			}
		}
		if known := seen["known"]; (known > 100) != owner.IsSession() {
			t.Errorf("%s: a call was known %d times", kind, known)
		}
	}
}
