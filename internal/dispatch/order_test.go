package dispatch

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// A call may wait for its session: it is assigned as soon as the session has begun here, and after the end it isn't. A runner must hear
// of both in that order, or it takes the call for its own and refuses the session.
func TestARunnerHearsOfItsSessionBeforeItsCallsAndOfNoneAfterItsEnd(t *testing.T) {
	t.Parallel()
	for range 20 {
		var mu sync.Mutex
		var said []string
		var others sync.WaitGroup
		s := newOfflineSession(NewHub(func(*Runner) {}), "job", "")
		s.send = func(m *wire.Message) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case m.Begin != nil:
				said = append(said, "begin")
			case m.Assign != nil:
				said = append(said, "assign")
			case m.End != nil:
				said = append(said, "end")
			}
			return nil
		}
		began := false
		s.changed = func(s *Runner, _ types.NamespacedName) {
			if began {
				return
			}
			began = true
			others.Go(func() { _ = s.AssignTo("s0", &wire.Assignment{CallUID: "c", CallName: "c", Decision: "d"}) })
			for range 1000 {
				runtime.Gosched()
			}
		}
		if err := s.Begin(&wire.Begin{SessionUID: "s0", SessionName: "session", MaxCalls: 10, MaxConcurrentCalls: 1}); err != nil {
			t.Fatal(err)
		}
		others.Wait()
		s.changed = func(s *Runner, _ types.NamespacedName) {
			others.Go(func() { _ = s.End("over") })
			for range 1000 {
				runtime.Gosched()
			}
		}
		_ = s.AssignTo("s0", &wire.Assignment{CallUID: "late", CallName: "late", Decision: "d"})
		others.Wait()
		if want := []string{"begin", "assign", "assign", "end"}; !slices.Equal(said, want) {
			t.Fatalf("the runner hears %q, want %q", said, want)
		}
	}
}
