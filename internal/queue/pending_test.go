package queue

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func newPending(requester string, n int, bytes int64) Pending {
	name := fmt.Sprintf("%s-%d", requester, n)
	return Pending{Holder{Name: types.NamespacedName{Namespace: "ns", Name: name}, UID: types.UID(name), User: requester}, bytes}
}

func newQueues(options PendingOptions) *Queues { return New(options, func(types.NamespacedName) {}) }

// total counts the pending calls anew.
func (q *Queues) total() (calls int, bytes int64) {
	return pendingModel(q.pending.calls).sum(func(Pending) bool { return true })
}

// expectNothing wants no pending calls.
func (q *Queues) expectNothing(t *testing.T) {
	t.Helper()
	if len(q.pending.calls)+len(q.pending.requesters) != 0 {
		t.Errorf("left over: %v, %v", q.pending.calls, q.pending.requesters)
	}
}

// The messages for a requester, which say what would pass.
func tooMany(used, limit int) string {
	return fmt.Sprintf("%d calls of this requester are pending, and %d is the limit: wait until some have started, or cancel some", used, limit)
}

func tooLarge(wanted int64, limit int) string {
	return fmt.Sprintf("the call has %d bytes of input, and %d is the limit for all pending calls of a requester: make the input smaller", wanted, limit)
}

func tooMuch(used, wanted, limit int) string {
	return fmt.Sprintf("the pending calls of this requester hold %d bytes of input and this call has %d, and %d is the limit: wait until some have started, or cancel some", used, wanted, limit)
}

func TestTheCallsAndTheBytesOfEachRequesterAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options PendingOptions
		before  []Pending
		call    Pending
		// want is the message; empty when the call passes.
		want string
	}{
		"no bounds": {
			before: []Pending{newPending("a", 0, 1<<40)}, call: newPending("a", 1, 1<<40),
		},
		"the last call that fits": {
			options: PendingOptions{MaxCalls: 2}, before: []Pending{newPending("a", 0, 9)}, call: newPending("a", 1, 9),
		},
		"one call too many": {
			options: PendingOptions{MaxCalls: 2}, before: []Pending{newPending("a", 0, 9), newPending("a", 1, 9)}, call: newPending("a", 2, 0),
			want: tooMany(2, 2),
		},
		"the last byte that fits": {
			options: PendingOptions{MaxBytes: 10}, before: []Pending{newPending("a", 0, 9)}, call: newPending("a", 1, 1),
		},
		"one byte too many": {
			options: PendingOptions{MaxBytes: 10}, before: []Pending{newPending("a", 0, 9)}, call: newPending("a", 1, 2),
			want: tooMuch(9, 2, 10),
		},
		"a call that never fits": {
			options: PendingOptions{MaxBytes: 10}, call: newPending("a", 1, 11), want: tooLarge(11, 10),
		},
		"as many bytes as a number holds": {
			options: PendingOptions{MaxBytes: 10}, before: []Pending{newPending("a", 0, 9)}, call: newPending("a", 1, 1<<63-1),
			want: tooLarge(1<<63-1, 10),
		},
		"another requester's calls": {
			options: PendingOptions{MaxCalls: 1, MaxBytes: 10}, before: []Pending{newPending("b", 0, 10)}, call: newPending("a", 0, 10),
		},
		"another namespace's calls of the requester": {
			options: PendingOptions{MaxCalls: 1}, before: []Pending{{Holder: Holder{Name: types.NamespacedName{Namespace: "other", Name: "c"}, UID: "c", User: "a"}}},
			call: newPending("a", 0, 0), want: tooMany(1, 1),
		},
		"calls without a requester together": {
			options: PendingOptions{MaxCalls: 1}, before: []Pending{newPending("", 0, 0)}, call: newPending("", 1, 0),
			want: tooMany(1, 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newQueues(test.options)
			for _, p := range test.before {
				if excess := b.Reserve(p); excess != "" {
					t.Fatalf("%s: %s", p.Name.Name, excess)
				}
			}
			if diff := cmp.Diff(test.want, b.Reserve(test.call)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			calls, _ := b.total()
			if want := len(test.before); test.want == "" && calls != want+1 || test.want != "" && calls != want {
				t.Errorf("%d calls are counted", calls)
			}
			for _, p := range append(test.before, test.call) {
				b.SetStarted(p.Name)
			}
			b.expectNothing(t)
		})
	}
}

func TestReservingAgainChangesNothing(t *testing.T) {
	t.Parallel()
	b := newQueues(PendingOptions{MaxCalls: 1, MaxBytes: 10})
	for range 3 {
		if excess := b.Reserve(newPending("a", 0, 10)); excess != "" {
			t.Fatal(excess)
		}
	}
	if calls, bytes := b.total(); calls != 1 || bytes != 10 {
		t.Errorf("%d calls with %d bytes", calls, bytes)
	}
	b.SetStarted(newPending("a", 0, 10).Name)
	b.SetStarted(newPending("a", 0, 10).Name)
	b.expectNothing(t)
}

func TestACallWithAUsedNameReplacesTheOldOne(t *testing.T) {
	t.Parallel()
	b := newQueues(PendingOptions{MaxCalls: 1, MaxBytes: 10})
	b.Reserve(newPending("a", 0, 10))
	again := newPending("a", 0, 3)
	again.UID = "another"
	if excess := b.Reserve(again); excess != "" {
		t.Errorf("the old call still counts: %s", excess)
	}
	if calls, bytes := b.total(); calls != 1 || bytes != 3 {
		t.Errorf("%d calls with %d bytes", calls, bytes)
	}
	again.UID, again.Bytes = "third", 11
	if b.Reserve(again) == "" {
		t.Error("a call over the bound takes the old one's place")
	}
	b.expectNothing(t)
}

func TestCallsThatWereLetInBeforeCountWhateverTheBoundsAre(t *testing.T) {
	t.Parallel()
	b := newQueues(PendingOptions{MaxCalls: 2, MaxBytes: 10})
	for range 2 {
		for n := range 3 {
			b.SetPending(newPending("a", n, 9))
		}
	}
	if calls, bytes := b.total(); calls != 3 || bytes != 27 {
		t.Errorf("%d calls with %d bytes", calls, bytes)
	}
	if excess := b.Reserve(newPending("a", 2, 9)); excess != "" {
		t.Errorf("a call that an earlier process let in is refused: %s", excess)
	}
	if diff := cmp.Diff(tooMany(3, 2), b.Reserve(newPending("a", 4, 0))); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestRequestersCanReserveAtTheSameTime(t *testing.T) {
	t.Parallel()
	const limit = 10
	b := newQueues(PendingOptions{MaxCalls: limit})
	var group sync.WaitGroup
	passed := make(chan Pending, 100)
	for n := range 100 {
		group.Go(func() {
			if p := newPending("a", n, 1); b.Reserve(p) == "" {
				passed <- p
			}
		})
	}
	group.Wait()
	close(passed)
	count := 0
	for p := range passed {
		count++
		group.Go(func() { b.SetStarted(p.Name) })
	}
	group.Wait()
	if count != limit {
		t.Errorf("%d calls passed", count)
	}
	b.expectNothing(t)
}

// FuzzPending runs any sequence of events against a list of calls that is counted anew each time.
func FuzzPending(f *testing.F) {
	f.Add([]byte{0, 1, 5, 0, 1, 5, 1, 1, 0})
	f.Add([]byte{0, 0, 255, 0, 4, 255, 2, 3, 200, 0, 3, 1, 1, 0, 0})
	f.Add([]byte{3, 0, 9, 0, 0, 9, 2, 0, 9, 1, 0, 0, 2, 0, 9})
	f.Fuzz(func(t *testing.T, events []byte) {
		options := PendingOptions{MaxCalls: 3, MaxBytes: 300}
		b, model := newQueues(options), pendingModel{}
		for ; len(events) >= 3; events = events[3:] {
			p := newPending(string('a'+rune(events[1]%3)), int(events[1]/3%8), int64(events[2]))
			switch events[0] % 4 {
			case 0:
				if got, want := b.Reserve(p), model.reserve(options, p); (got == "") != want {
					t.Fatalf("reserve %v: %q, want it to pass: %t", p, got, want)
				}
			case 1:
				b.SetStarted(p.Name)
				delete(model, p.Name)
			case 2:
				// The same name is used by a new call.
				p.UID += types.UID(events[2])
				if got, want := b.Reserve(p), model.reserve(options, p); (got == "") != want {
					t.Fatalf("reserve %v: %q, want it to pass: %t", p, got, want)
				}
			case 3:
				// The process is replaced.
				b = newQueues(options)
				for _, p := range model {
					b.SetPending(p)
				}
			}
			calls, bytes := b.total()
			if wantCalls, wantBytes := model.sum(func(Pending) bool { return true }); calls != wantCalls || bytes != wantBytes {
				t.Fatalf("%d calls with %d bytes, want %d and %d", calls, bytes, wantCalls, wantBytes)
			}
		}
		for call := range model {
			b.SetStarted(call)
		}
		b.expectNothing(t)
	})
}

type pendingModel map[types.NamespacedName]Pending

func (m pendingModel) sum(of func(Pending) bool) (calls int, bytes int64) {
	for _, p := range m {
		if of(p) {
			calls++
			bytes += p.Bytes
		}
	}
	return calls, bytes
}

func (m pendingModel) reserve(options PendingOptions, p Pending) bool {
	if m[p.Name].UID == p.UID {
		return true
	}
	delete(m, p.Name)
	calls, bytes := m.sum(func(other Pending) bool { return other.User == p.User })
	if calls+1 > options.MaxCalls || bytes+p.Bytes > options.MaxBytes {
		return false
	}
	m[p.Name] = p
	return true
}
