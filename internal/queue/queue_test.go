package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var env = types.NamespacedName{Namespace: "ns", Name: "env"}

// newEntry is the call of a requester that was created n seconds after the epoch.
func newEntry(requester string, n int) Holder {
	name := fmt.Sprintf("%s-%d", requester, n)
	return Holder{
		Name: types.NamespacedName{Namespace: "ns", Name: name}, UID: types.UID(name),
		User: requester, Created: time.Unix(int64(n), 0),
	}
}

// recorder keeps the names of the calls that were woken.
type recorder struct {
	*Queues
	woken []string
}

func newRecorder() *recorder {
	r := &recorder{}
	r.Queues = New(PendingOptions{}, func(c types.NamespacedName) { r.woken = append(r.woken, c.Name) })
	return r
}

func (r *recorder) admit(limit int, e Holder) bool { return r.Admit(env, limit, e) }

// release ends a call and returns the calls that were woken by that.
func (r *recorder) release(e Holder) []string {
	r.woken = nil
	r.Release(e.Name)
	return r.woken
}

// expectEmpty wants nothing left of calls that have ended.
func (q *Queues) expectEmpty(t *testing.T) {
	t.Helper()
	if len(q.in) != 0 {
		t.Errorf("left over: calls %v", q.in)
	}
	for name, e := range q.environments {
		if len(e.running)+len(e.waiting)+len(e.requesters) != 0 {
			t.Errorf("left over in %s: running %v, waiting %v, requesters %v", name, e.running, e.waiting, e.requesters)
		}
	}
}

// count returns how many calls run and how many wait, in all environments.
func (q *Queues) count() (running, waiting int) {
	q.mu.Lock()
	for _, e := range q.environments {
		running += len(e.running)
	}
	q.mu.Unlock()
	for _, n := range q.Waiting() {
		waiting += n
	}
	return running, waiting
}

func TestAQueueWithoutALimitAdmitsEveryCall(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	for i := range 100 {
		if !r.admit(0, newEntry("a", i)) {
			t.Fatalf("call %d has to wait", i)
		}
	}
	if running, waiting := r.count(); running != 100 || waiting != 0 || r.woken != nil {
		t.Errorf("%d run, %d wait, woken %q", running, waiting, r.woken)
	}
}

func TestCallsOfOneRequesterStartInTheOrderOfTheirCreation(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.admit(1, newEntry("a", 0))
	for _, n := range []int{3, 1, 2} {
		if r.admit(1, newEntry("a", n)) {
			t.Fatalf("call %d is admitted over the limit", n)
		}
	}
	for n := range 3 {
		if got, want := r.release(newEntry("a", n)), []string{fmt.Sprintf("a-%d", n+1)}; !slices.Equal(got, want) {
			t.Errorf("after call %d: woken %q, want %q", n, got, want)
		}
	}
	if got := r.release(newEntry("a", 3)); got != nil {
		t.Errorf("woken %q though no call waits", got)
	}
	r.expectEmpty(t)
}

func TestCallsOfOneSecondStartInTheOrderOfTheirRevisions(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	at := func(n int, revision int64) Holder {
		e := newEntry("a", n)
		e.Created, e.Revision = time.Unix(1, 0), revision
		return e
	}
	first, second, third := at(3, 1), at(1, 2), at(2, 10)
	running := newEntry("a", 0)
	for _, e := range []Holder{running, third, first, second} {
		r.admit(1, e)
	}
	for _, step := range []struct{ ends, starts Holder }{{running, first}, {first, second}, {second, third}} {
		if got := r.release(step.ends); !slices.Equal(got, []string{step.starts.Name.Name}) {
			t.Errorf("after %s: woken %q, want %s", step.ends.Name.Name, got, step.starts.Name.Name)
		}
	}
}

func TestAskingAgainKeepsTheSlotAndThePosition(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.admit(1, newEntry("a", 0))
	r.admit(1, newEntry("a", 1))
	r.admit(1, newEntry("a", 2))
	for range 3 {
		if !r.admit(1, newEntry("a", 0)) || r.admit(1, newEntry("a", 2)) || r.admit(1, newEntry("a", 1)) {
			t.Fatal("asking again changes the answer")
		}
	}
	if got := r.release(newEntry("a", 0)); !slices.Equal(got, []string{"a-1"}) {
		t.Errorf("woken %q", got)
	}
	if running, waiting := r.count(); running != 1 || waiting != 1 {
		t.Errorf("%d run, %d wait", running, waiting)
	}
}

func TestAReleasedCallLeavesTheLine(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.admit(1, newEntry("a", 0))
	r.admit(1, newEntry("a", 1))
	r.admit(1, newEntry("a", 2))
	if got := r.release(newEntry("a", 1)); got != nil {
		t.Errorf("woken %q by a call that only waited", got)
	}
	if r.IsWaiting(newEntry("a", 1).Name, "a-1") || !r.IsWaiting(newEntry("a", 2).Name, "a-2") {
		t.Error("the wrong calls wait")
	}
	if got := r.release(newEntry("a", 0)); !slices.Equal(got, []string{"a-2"}) {
		t.Errorf("woken %q", got)
	}
}

func TestACallWithAUsedNameIsAnotherCall(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.admit(1, newEntry("a", 0))
	r.admit(1, newEntry("a", 1))
	again := newEntry("a", 0)
	again.UID, again.Created = "another", time.Unix(9, 0)
	if r.admit(1, again) {
		t.Error("the new call has the old one's slot")
	}
	if !slices.Equal(r.woken, []string{"a-1"}) {
		t.Errorf("woken %q", r.woken)
	}
	if r.IsWaiting(again.Name, "a-0") || !r.IsWaiting(again.Name, "another") {
		t.Error("the old call waits in place of the new one")
	}
}

func TestANewLimitHoldsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	for n := range 6 {
		r.admit(1, newEntry("a", n))
	}
	r.woken = nil
	r.SetLimit(env, 3)
	if !slices.Equal(r.woken, []string{"a-1", "a-2"}) {
		t.Errorf("raised to 3: woken %q", r.woken)
	}
	r.SetLimit(env, 1)
	if got := r.release(newEntry("a", 0)); got != nil {
		t.Errorf("lowered to 1 with two running: woken %q", got)
	}
	r.woken = nil
	r.SetLimit(env, 0)
	if !slices.Equal(r.woken, []string{"a-3", "a-4", "a-5"}) {
		t.Errorf("without a limit: woken %q", r.woken)
	}
	r.SetLimit(types.NamespacedName{Name: "unknown"}, 5)
	if len(r.environments) != 1 {
		t.Error("a limit makes a queue of an environment without calls")
	}
}

// They find out that it is gone, or ask again where another one has its name by then: that has a limit, too.
func TestTheCallsOfADeletedEnvironmentAreWokenAndNotAdmitted(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	for n := range 3 {
		r.admit(1, newEntry("a", n))
	}
	r.RemoveEnvironment(env)
	if !slices.Equal(r.woken, []string{"a-1", "a-2"}) {
		t.Errorf("woken %q", r.woken)
	}
	for _, n := range []int{2, 1} {
		if entry := newEntry("a", n); r.IsWaiting(entry.Name, entry.UID) || r.admit(1, entry) {
			t.Errorf("call %d waits for an environment that is gone, or is admitted beside the one that runs", n)
		}
	}
	r.woken = nil
	for n := range 3 {
		if len(r.environments) != 1 {
			t.Fatal("the queue is forgotten before its last call")
		}
		r.Release(newEntry("a", n).Name)
	}
	if !slices.Equal(r.woken, []string{"a-1", "a-2"}) || len(r.environments) != 0 {
		t.Errorf("woken %q; %d queues are known", r.woken, len(r.environments))
	}
	r.RemoveEnvironment(env)
}

func TestEnvironmentsHaveQueuesOfTheirOwn(t *testing.T) {
	t.Parallel()
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	for name, move := range map[string]func(r *recorder){
		"asks in another environment": func(r *recorder) { r.Admit(other, 1, newEntry("a", 0)) },
		"runs in another environment": func(r *recorder) { r.SetRunning(other, newEntry("a", 0)) },
		"waits in another environment": func(r *recorder) {
			r.Admit(other, 1, newEntry("b", 5))
			r.woken = nil
			r.Admit(other, 1, newEntry("a", 0))
		},
	} {
		t.Run("a call that "+name+" frees its slot", func(t *testing.T) {
			t.Parallel()
			r := newRecorder()
			r.admit(1, newEntry("a", 0))
			r.admit(1, newEntry("a", 2))
			move(r)
			if !slices.Equal(r.woken, []string{"a-2"}) {
				t.Errorf("woken %q", r.woken)
			}
			if r.in[newEntry("a", 0).Name].name != other {
				t.Error("the call stayed in its old environment")
			}
		})
	}
}
