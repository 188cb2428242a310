package dispatch

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// newOfflineSession is a session whose runner says nothing.
func newOfflineSession(h *Hub, job, call string) *Runner {
	return &Runner{
		hello: wire.Hello{Namespace: "ns", Job: job, JobUID: job, Call: call}, keyHash: "key-" + job, call: call,
		send: func(*wire.Message) error { return nil }, close: func() {}, changed: h.reindex, hasRoom: func() bool { return true },
		keepDecision: func(string) (string, func()) { return "", nil },
	}
}

// Whatever runners are made for, given and lose, each is found by what it has, and nothing else is left in the index.
func TestTheIndexHasWhatTheSessionsHave(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 5))
		h := NewHub(func(*Runner) {})
		var sessions []*Runner
		name := func(what string, n int) string { return fmt.Sprint(what, random.IntN(n)) }
		for range 400 {
			if len(sessions) == 0 || random.IntN(10) == 0 {
				s := newOfflineSession(h, name("job", 10), []string{"", "call0", "call1"}[random.IntN(3)])
				if random.IntN(2) == 0 {
					s.call, s.served = "", newServed(ToolSession{UID: "s0", Name: "session0"})
				}
				if h.add(s) {
					sessions = append(sessions, s)
				}
				continue
			}
			s, uid := sessions[random.IntN(len(sessions))], name("c", 6)
			switch random.IntN(8) {
			case 0:
				h.remove(s)
			case 1:
				_ = s.Begin(&wire.Begin{SessionUID: name("s", 2), SessionName: name("session", 2), MaxCalls: 1, MaxConcurrentCalls: 1})
			case 2:
				_ = s.Assign(&wire.Assignment{CallUID: uid, CallName: name("call", 3)})
			case 3, 4:
				_ = s.AssignTo("s0", &wire.Assignment{CallUID: uid, CallName: name("call", 3), Decision: "d"})
			case 5:
				_ = s.Stop(uid, name("call", 3), "reason")
			case 6:
				s.setServedResultForTest(uid)
			case 7:
				_ = s.Ack(uid)
			}
			checkIndex(t, h)
		}
		for _, s := range sessions {
			h.remove(s)
		}
		if len(h.calls)+len(h.served)+len(h.runners) != 0 {
			t.Fatalf("seed %d: left are %v and %v", seed, h.calls, h.served)
		}
	}
}

func (s *Runner) setServedResultForTest(uid string) {
	if _, serves := s.ToolSession(); serves {
		s.setServedResult(&wire.Result{CallUID: uid}, 1, func() {})
	}
}

func checkIndex(t *testing.T, h *Hub) {
	t.Helper()
	calls, served := index{}, index{}
	for _, s := range h.runners {
		ofCalls, ofSessions := s.names()
		for _, name := range ofCalls {
			calls.set(name, s, true)
		}
		for _, name := range ofSessions {
			served.set(name, s, true)
		}
	}
	for what, x := range map[string]struct{ got, want index }{"calls": {h.calls, calls}, "sessions": {h.served, served}} {
		if len(x.got) != len(x.want) {
			t.Fatalf("%s: %v, want %v", what, x.got, x.want)
		}
		for name, want := range x.want {
			if len(x.got[name]) != len(want) {
				t.Fatalf("%s %s: %v, want %v", what, name, x.got[name], want)
			}
			for s := range want {
				if _, ok := x.got[name][s]; !ok {
					t.Fatalf("%s: a session isn't found by %s", what, name)
				}
			}
		}
	}
}

// BenchmarkDismiss is what each pass over a call asks of the hub: idle sessions don't make it slower.
func BenchmarkDismiss(b *testing.B) {
	for _, connected := range []int{10, 8000} {
		b.Run(fmt.Sprint(connected, " connected"), func(b *testing.B) {
			h := NewHub(func(*Runner) {})
			for i := range connected {
				s := newOfflineSession(h, fmt.Sprint("job-", i), "")
				s.served = newServed(ToolSession{UID: fmt.Sprint("s-", i), Name: fmt.Sprint("session-", i)})
				h.add(s)
			}
			for b.Loop() {
				h.Dismiss("ns", "call", "uid", "gone")
			}
		})
	}
}

func TestRunnersThatWereSeenLeaveNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	n := newSeenRunners()
	name := types.NamespacedName{Namespace: "ns", Name: "session"}
	for range 500 {
		key := fmt.Sprint("key", random.IntN(5))
		if random.IntN(3) == 0 {
			n.forget(key)
			continue
		}
		n.set(&seenRunner{claim: &claim{namespace: "ns", session: "session", sessionUID: fmt.Sprint("s", random.IntN(2)), keyHash: key}})
		if len(n.ofSession(name, "")) != len(n.runners) {
			t.Fatalf("%v are found of %v", n.ofSession(name, ""), n.runners)
		}
	}
	for _, key := range n.ofSession(name, "") {
		n.forget(key)
	}
	if len(n.runners)+len(n.sessions) != 0 {
		t.Errorf("left are %v and %v", n.runners, n.sessions)
	}
}
