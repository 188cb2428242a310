package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// runner is one process that has a call, over its connections.
type runner struct {
	o       *operator
	config  *dial.Config
	serving *wire.Serving
	conn    *dial.Conn
	session *dispatch.Runner
}

// connectRunner is the runner of a Job and an owner, that was given call "c1" on an earlier connection.
func connectRunner(t *testing.T, o *operator, job string, owner wire.Owner) *runner {
	t.Helper()
	r := &runner{o: o, config: runnerOf(t, podEnv(o, job)), serving: servingC1(owner)}
	r.connect(t)
	return r
}

func (r *runner) connect(t *testing.T) {
	t.Helper()
	r.conn = connect(t, r.config, r.serving)
	r.session = r.o.event(t)
}

// withEachOwner runs a test with a runner of a call, and with one of a session.
func withEachOwner(t *testing.T, test func(t *testing.T, r *runner)) {
	t.Helper()
	for name, owner := range owners {
		t.Run("the runner of "+name, func(t *testing.T) { test(t, connectRunner(t, startOperator(t, newIdentity(t)), "job", owner)) })
	}
}

// report sends the result of call "c1", and waits until the hub has it.
func (r *runner) report(t *testing.T) {
	t.Helper()
	if err := r.conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1", Outcome: result.Outcome{Reason: result.Completed}}}); err != nil {
		t.Fatal(err)
	}
	r.o.event(t)
}

// disconnect ends the connection, and waits until the hub has noticed.
func (r *runner) disconnect(t *testing.T) {
	t.Helper()
	r.conn.Close()
	r.o.event(t)
}

// result is what the hub has of this runner.
func (r *runner) result() *wire.Result { return r.o.hub.Result(r.session.KeyHash(), "c1") }

func TestAResultOutlivesItsConnection(t *testing.T) {
	withEachOwner(t, func(t *testing.T, r *runner) {
		if r.result() != nil {
			t.Error("there is a result before it was reported")
		}
		r.report(t)
		if got := r.result(); got == nil || got.CallUID != "c1" {
			t.Fatalf("while it is connected: %+v", got)
		}
		r.disconnect(t)
		if got := r.result(); got == nil || got.CallUID != "c1" {
			t.Fatalf("after the connection's end: %+v", got)
		}
		if r.o.hub.Result("another key", "c1") != nil || r.o.hub.Result(r.session.KeyHash(), "another call") != nil {
			t.Error("another runner has it, too")
		}
		r.o.hub.Release(r.session.KeyHash(), "c1")
		if r.result() != nil {
			t.Error("it is still there after its release")
		}
	})
}

func TestAResultIsThereWhileItsRunnerConnectsAgain(t *testing.T) {
	withEachOwner(t, func(t *testing.T, r *runner) {
		r.report(t)
		r.disconnect(t)
		r.connect(t)
		if r.result() == nil {
			t.Error("it went when the runner came back without it")
		}
		r.disconnect(t)
		if r.result() == nil {
			t.Error("it went with the second connection")
		}
		r.connect(t)
		r.report(t)
		if r.result() != r.session.ResultOf("c1") {
			t.Error("what the runner sent again doesn't count")
		}
	})
}

// The runner's new connection may come before the end of its old one is noticed.
func TestAResultOutlivesTheConnectionThatIsReplaced(t *testing.T) {
	withEachOwner(t, func(t *testing.T, r *runner) {
		r.report(t)
		old := r.session
		r.connect(t)
		if r.session == old || r.session.KeyHash() != old.KeyHash() {
			t.Fatal("it isn't the same runner on another connection")
		}
		if r.result() == nil {
			t.Error("it went with the connection that was replaced")
		}
		if r.o.hub.Runner("job-uid") != r.session || r.o.hub.RunnerByKey(old.KeyHash()) != r.session || r.o.hub.Len() != 1 {
			t.Error("the new connection isn't the runner's session")
		}
	})
}

func TestAResultThatWasAcknowledgedIsNotKept(t *testing.T) {
	withEachOwner(t, func(t *testing.T, r *runner) {
		r.report(t)
		if err := r.session.Ack("c1"); err != nil {
			t.Fatal(err)
		}
		if m, err := r.conn.Receive(); err != nil || m.Ack == nil {
			t.Fatalf("got %+v, %v", m, err)
		}
		r.disconnect(t)
		if r.result() != nil {
			t.Error("it is kept")
		}
	})
}

// A runner that was refused must not be asked for its result any more, and nobody else would release it.
func TestAResultThatWasRefusedIsNotKept(t *testing.T) {
	withEachOwner(t, func(t *testing.T, r *runner) {
		r.report(t)
		r.session.Refuse("it isn't valid")
		r.o.event(t)
		if r.result() != nil {
			t.Error("it is kept")
		}
	})
}

func TestDismissForgetsTheResultsOfACallThatIsGone(t *testing.T) {
	for name, connected := range map[string]bool{"of a runner that is connected": true, "of a runner that went before": false} {
		t.Run(name, func(t *testing.T) {
			o := startOperator(t, newIdentity(t))
			r := connectRunner(t, o, "job", theCall)
			r.report(t)
			another := theCall
			another.Name = "another"
			other := &runner{o: o, config: runnerOf(t, podEnv(o, "other")), serving: servingC1(another)}
			other.serving.Calls[0].Name = another.Name
			other.connect(t)
			other.report(t)
			other.disconnect(t)
			if !connected {
				r.disconnect(t)
			}
			o.hub.Dismiss("ns", "call", "", "the call is gone")
			if connected {
				o.event(t)
			}
			if r.result() != nil {
				t.Error("the result of the call that is gone is kept")
			}
			if other.result() == nil {
				t.Error("another call's result is gone, too")
			}
			o.hub.Dismiss("another namespace", "another", "", "gone")
			if other.result() == nil {
				t.Error("a call of that name in another namespace takes the result along")
			}
		})
	}
}

func TestRunnersCanReachTheOperatorSinceItListens(t *testing.T) {
	hub := dispatch.NewHub(func(*dispatch.Runner, dispatch.News) {})
	if !hub.Since().IsZero() {
		t.Errorf("before it listens: %s", hub.Since())
	}
	now := time.Unix(1_700_000_000, 0)
	hub.Listening(now)
	if !hub.Since().Equal(now) {
		t.Errorf("since %s", hub.Since())
	}
}

func TestAHubWithoutRunnersHasNothing(t *testing.T) {
	hub := dispatch.NewHub(func(*dispatch.Runner, dispatch.News) { t.Error("it told of something") })
	hub.Release("key", "c1")
	hub.Dismiss("ns", "call", "", "reason")
	if hub.Runner("job") != nil || hub.RunnerByKey("key") != nil || hub.Result("key", "c1") != nil || hub.Len() != 0 {
		t.Error("there is something")
	}
}

// Whatever order connections, results and acknowledgements come in: a result is there until somebody acknowledged,
// refused or released it, and afterwards nothing is left.
func TestNoResultIsLostOrKeptInAnyOrder(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			r := connectRunner(t, startOperator(t, newIdentity(t)), "job", []wire.Owner{theCall, theSession}[seed%2])
			connected, reported, want := true, false, false
			for range 30 {
				switch step := random.IntN(6); {
				case !connected || step == 0:
					// Also while the last connection is there.
					r.connect(t)
					connected, reported = true, false
				case step == 1:
					r.disconnect(t)
					connected = false
				case step == 2 && !reported:
					r.report(t)
					reported, want = true, true
				case step == 3 && reported:
					_ = r.session.Ack("c1")
					r.o.hub.Release(r.session.KeyHash(), "c1")
					r.disconnect(t)
					connected, want = false, false
				case step == 4 && reported:
					r.session.Refuse("no")
					r.o.event(t)
					r.o.hub.Release(r.session.KeyHash(), "c1")
					connected, want = false, false
				}
				if got := r.result(); (got != nil) != want {
					t.Fatalf("the result is %+v, and should be there: %t", got, want)
				}
			}
		})
	}
}

func TestTheHubIsUsedFromManyGoroutines(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	r := connectRunner(t, o, "job", theCall)
	r.report(t)
	key := r.session.KeyHash()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				o.hub.Runner("job-uid")
				o.hub.RunnerByKey(key)
				o.hub.Result(key, "c1")
				o.hub.Release(key, "c1")
				o.hub.Dismiss("ns", "another", "", "gone")
				o.hub.Listening(time.Now())
				o.hub.Since()
				o.hub.Len()
			}
		})
	}
	r.disconnect(t)
	all.Wait()
	o.hub.Release(key, "c1")
	if r.result() != nil || o.hub.Len() != 0 {
		t.Error("something is left")
	}
}
