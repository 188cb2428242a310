package toolcall_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// Whatever the order of events, lost answers and connections, late writes, caches that are behind, crashes of the operator and
// of processes: a call is started at most once, ends once, and is said to be safe to repeat only when it wasn't started.
func TestConvergenceOfCallsInSessions(t *testing.T) {
	fixture.NewWorld(t).VouchForRequesters()
	plans := map[string]storyPlan{
		"cold":           {sessions: 1, concurrent: 1},
		"two, cold":      {sessions: 2, concurrent: 1},
		"warm":           {sessions: 1, concurrent: 2, warmly: true},
		"claim":          {sessions: 1, concurrent: 1, claim: true},
		"two with claim": {sessions: 2, concurrent: 3, claim: true},
	}
	var mu sync.Mutex
	seen := map[string]int{}
	t.Run("stories", func(t *testing.T) {
		for name, plan := range plans {
			for seed := range fixture.Seeds(4) {
				t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
					t.Parallel() // A story mostly waits.
					s := newCallStory(t, seed, plan)
					defer s.tellIfFailed()
					s.tell(90)
					s.resume()
					s.rest()
					s.checkEnds()
					s.clear()
					s.checkMemory()
					mu.Lock()
					defer mu.Unlock()
					for what, times := range s.seen {
						seen[what] += times
					}
				})
			}
		}
	})
	for _, what := range []string{
		"Succeeded Completed", "Failed PodLost", "Failed SessionEnded", "Cancelled CancelRequested",
		"a late write arrives", "the cache falls behind", "the operator crashes", "%s loses its connection", "the process of %s dies on %s",
		"%s hears stop %s", "%s hears end %s",
	} {
		if seen[what] == 0 && !t.Failed() && fixture.ApiServer != nil {
			t.Errorf("%q never happened: this tests something else", what)
		}
	}
	t.Log(seen)
}

func (s *callStory) tellIfFailed() {
	if s.T.Failed() {
		s.T.Log("what happened:\n" + strings.Join(s.told, "\n"))
	}
}

// resume has nobody keep a session from going on.
func (s *callStory) resume() {
	for _, session := range s.sessions {
		if _, found := s.Find(session); found && s.plan.claim {
			s.EditSession(session, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
		}
	}
}

// checkEnds looks at what became of every call.
func (s *callStory) checkEnds() {
	calls := &v1alpha1.ToolCallList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), calls, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	for i := range calls.Items {
		c := &calls.Items[i]
		fixture.Eventually(s.T, func() bool { return s.of(string(c.UID)).last.ResourceVersion == c.ResourceVersion })
		if !c.Status.Phase.Terminal() {
			s.T.Errorf("%s is %s: %+v", c.Name, c.Status.Phase, c.Status.Conditions)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, one := range s.calls {
		s.seen[string(one.last.Status.Phase)+" "+one.last.Status.Reason]++
		s.checkEnd(uid, one)
	}
	before := s.client.Writes
	for range 3 {
		for _, name := range s.names {
			s.lookAt(name)
		}
		for _, session := range s.sessions {
			_ = s.KeepError(session)
		}
	}
	if s.client.Writes != before {
		s.T.Errorf("what has come to rest is written %d times", s.client.Writes-before)
	}
}

// checkEnd compares what a call says with what the processes did.
func (s *callStory) checkEnd(uid string, one *callHistory) {
	c, starts := one.last, s.ledger.Starts[uid]
	st := &c.Status
	ended := fmt.Sprintf("%s ended %s/%s (%s), started %+v", c.Name, st.Phase, st.Reason, st.Message, starts)
	switch {
	case ptr.Deref(st.RetrySafe, false) && len(starts) > 0:
		s.T.Errorf("it is said to be safe to repeat: %s", ended)
	case st.Phase == v1alpha1.PhaseSucceeded && (len(starts) != 1 || st.Stdout != starts[0].Output):
		s.T.Errorf("with stdout %q %s", st.Stdout, ended)
	case len(starts) > 0 && st.Session != nil && st.Session.Incarnation > 0 && st.Session.Incarnation != starts[0].Incarnation:
		s.T.Errorf("in incarnation %d %s", st.Session.Incarnation, ended)
	case (st.Phase == v1alpha1.PhaseFailed || st.Phase == v1alpha1.PhaseCancelled) && st.RetrySafe == nil:
		s.T.Errorf("it isn't said whether it is safe to repeat: %s", ended)
	case st.Phase == v1alpha1.PhaseDenied:
		s.T.Errorf("it is denied: %s", ended)
	}
}

// clear has all sessions and calls go.
func (s *callStory) clear() {
	for _, session := range s.sessions {
		if err := s.World.Client.Delete(context.Background(), session); client.IgnoreNotFound(err) != nil {
			s.T.Fatal(err)
		}
	}
	s.rest()
	for _, name := range s.names {
		s.remove(name)
	}
	s.rest()
	for _, session := range s.sessions {
		if now, found := s.Find(session); found {
			s.T.Errorf("session %s is left: %+v", session.Name, now.Status)
		}
	}
}

// checkMemory says that the operator remembers nothing of what is gone.
func (s *callStory) checkMemory() {
	for what, of := range map[string]any{
		"queue.calls": s.Queue, "queue.lines": s.Queue, "pending.calls": field(s.Reconciler.Queue, "pending"), "hub.objects": s.Hub,
	} {
		_, name, _ := strings.Cut(what, ".")
		if n := s.entries(field(of, name)); n > 0 {
			s.T.Errorf("%s still has %d entries", what, n)
		}
	}
}

// entries counts those of a map, but for calls of other tests, which the budget of requesters has too.
func (s *callStory) entries(of reflect.Value) (n int) {
	for _, key := range of.MapKeys() {
		if key.Kind() == reflect.Struct && key.FieldByName("Namespace").IsValid() && key.FieldByName("Namespace").String() != s.Namespace {
			continue
		}
		n++
	}
	return n
}

// field is a field that only its package can name.
func field(of any, name string) reflect.Value {
	v, ok := of.(reflect.Value)
	if !ok {
		v = reflect.ValueOf(of)
	}
	return reflect.Indirect(v).FieldByName(name)
}
