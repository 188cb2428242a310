package dispatch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// newOfflineRunner is a runner that says nothing.
func newOfflineRunner(h *Hub, job, call string) *Runner {
	return &Runner{
		hello: wire.Hello{Namespace: "ns", Job: job, JobUID: job, Call: call}, keyHash: "key-" + job,
		hub: h, outbox: &outbox{}, send: func(*wire.Message) error { return nil }, results: newResultBudgets(), cancel: func() {},
	}
}

// sessionOwner and sessionBegin are of session i.
func sessionOwner(i int) wire.Owner {
	return wire.Owner{Kind: wire.KindSession, UID: fmt.Sprint("s", i), Name: fmt.Sprint("session", i), Incarnation: 1}
}

func sessionBegin(i int) *wire.Begin {
	return &wire.Begin{Owner: sessionOwner(i), MaxCalls: 100, MaxConcurrentCalls: 16}
}

// Whatever runners are made for, given and lose, each is found by what it has, and nothing else is left in the index, or of the results.
func TestTheIndexHasWhatTheRunnersHave(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 5))
		h := NewHub(func(*Runner, News) {})
		var runners []*Runner
		results := 0
		name := func(what string, n int) string { return fmt.Sprint(what, random.IntN(n)) }
		for range 400 {
			if len(runners) == 0 || random.IntN(10) == 0 {
				s := newOfflineRunner(h, name("job", 10), []string{"", "call0", "call1"}[random.IntN(3)])
				switch random.IntN(4) {
				case 0:
					s.served = newServed(sessionOwner(0), time.Now())
				case 1:
					s.served = newServed(wire.BeginCall(name("c", 6), name("call", 3)).Owner, time.Now())
				}
				if h.add(s) {
					runners = append(runners, s)
				}
				continue
			}
			s, uid := runners[random.IntN(len(runners))], name("c", 6)
			owner, _ := s.Owner()
			if owner.IsCall() && random.IntN(4) > 0 {
				uid = owner.UID
			}
			switch random.IntN(10) {
			case 0:
				h.remove(s)
			case 1:
				_ = s.Begin(sessionBegin(random.IntN(2)))
			case 2:
				_ = s.Begin(wire.BeginCall(uid, name("call", 3)))
			case 3, 4:
				_ = s.Assign(owner.UID, &wire.Assignment{CallUID: uid, CallName: name("call", 3), Decision: "d"})
			case 5:
				_ = s.Stop(uid, "reason")
			case 6:
				if !s.IsWaiting() {
					results++
					_, _ = s.setResult(&wire.Result{CallUID: uid}, func() { results-- })
				}
			case 7:
				_ = s.Ack(uid)
			case 8:
				h.Dismiss("ns", name("call", 3), []string{"", uid}[random.IntN(2)], "gone")
			case 9:
				h.Release(s.keyHash, uid)
			}
			checkIndex(t, h)
		}
		for _, s := range runners {
			h.remove(s)
			h.Forget(s.keyHash)
		}
		if len(h.objects)+len(h.runners)+len(h.processes) != 0 || results != 0 {
			t.Fatalf("seed %d: left are %v and %d results", seed, h.objects, results)
		}
	}
}

func checkIndex(t *testing.T, h *Hub) {
	t.Helper()
	want := index{}
	for _, s := range append(h.all(), h.lost()...) {
		for _, object := range s.objects() {
			want.set(object, s, true)
		}
	}
	if !maps.EqualFunc(h.objects, want, maps.Equal[map[*Runner]struct{}, map[*Runner]struct{}]) {
		t.Fatalf("got %v, want %v", h.objects, want)
	}
}

// BenchmarkDismiss is what each pass over a call asks of the hub: idle sessions don't make it slower.
func BenchmarkDismiss(b *testing.B) {
	for _, connected := range []int{10, 8000} {
		b.Run(fmt.Sprint(connected, " connected"), func(b *testing.B) {
			h := NewHub(func(*Runner, News) {})
			for i := range connected {
				s := newOfflineRunner(h, fmt.Sprint("job-", i), "")
				s.served = newServed(sessionOwner(i), time.Now())
				h.add(s)
			}
			for b.Loop() {
				h.Dismiss("ns", "call", "uid", "gone")
			}
		})
	}
}
