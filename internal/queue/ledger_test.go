package queue

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// books is a ledger with a clock, and who was woken.
type books struct {
	*Ledger
	at    time.Time
	woken []string
}

func newBooks(t *testing.T, snapshot LedgerSnapshot) *books {
	t.Helper()
	b := &books{at: time.Unix(1_000_000*60, 0)}
	b.Ledger = NewLedger(func() time.Time { return b.at }, func(_ Resource, name types.NamespacedName) { b.woken = append(b.woken, name.Name) })
	if err := b.Seed(t.Context(), "ns", func(context.Context) (LedgerSnapshot, error) { return snapshot, nil }); err != nil {
		t.Fatal(err)
	}
	return b
}

var versions atomic.Int64

// rule is a budget for the users whose names begin so.
func rule(name, users string, limit func(*Amounts)) Rule {
	r := Rule{Name: name, Version: fmt.Sprint(versions.Add(1)), Limits: Unlimited(), Covers: func(user string, _ []string) bool { return strings.HasPrefix(user, users) }}
	limit(&r.Limits)
	return r
}

func callsAtMost(n int64) func(*Amounts) { return func(a *Amounts) { a[Calls] = n } }

// holder is a user's n-th call.
func holder(user string, n int) Holder {
	name := fmt.Sprint(user, n)
	return Holder{Name: named(name), UID: types.UID(name), User: user, Revision: int64(n)}
}

var spenders atomic.Int64

// spent is the CPU of another call of a user.
func spent(user string, ended time.Time, milliseconds int64) Spent {
	return Spent{Call: types.UID(fmt.Sprint("spender", spenders.Add(1))), User: user, Ended: ended, Milliseconds: milliseconds}
}

func (b *books) ask(user string, n int) bool { return b.Ask(Calls, holder(user, n), 1) == nil }

func (b *books) used(t *testing.T, budget string) Amounts {
	t.Helper()
	used, ok := b.Used(named(budget))
	if !ok {
		t.Fatalf("nobody knows the budget %s", budget)
	}
	return used
}

func TestABudgetSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit  func(*Amounts)
		what   Resource
		before int64
		amount int64
		never  bool
		want   string
	}{
		"calls that fit":    {limit: callsAtMost(2), what: Calls, before: 1, amount: 1},
		"one call too many": {limit: callsAtMost(1), what: Calls, before: 1, amount: 1, want: `ToolBudget "b" lets 1 calls run at the same time (maxConcurrentCalls): the call waits until another one has ended`},
		"no calls at all":   {limit: callsAtMost(0), what: Calls, amount: 1, never: true, want: `ToolBudget "b" lets no call run (maxConcurrentCalls is 0)`},
		"the last byte":     {limit: func(a *Amounts) { a[PendingBytes] = 10 }, what: PendingBytes, before: 4, amount: 6},
		"a byte too many":   {limit: func(a *Amounts) { a[PendingBytes] = 10 }, what: PendingBytes, before: 4, amount: 7, want: `ToolBudget "b" lets pending calls hold 10 bytes of input together (maxPendingBytes), and this call has 7: it waits until others have started`},
		"an input that never fits": {limit: func(a *Amounts) { a[PendingBytes] = 10 }, what: PendingBytes, amount: 11, never: true,
			want: `the call has 11 bytes of input, and ToolBudget "b" lets all pending calls together hold 10 (maxPendingBytes): make the input smaller`},
		"one session too many": {limit: func(a *Amounts) { a[Sessions] = 1 }, what: Sessions, before: 1, amount: 1, want: `ToolBudget "b" lets 1 sessions have a pod at the same time (maxSessions): the session waits until another one has ended`},
		"no sessions at all":   {limit: func(a *Amounts) { a[Sessions] = 0 }, what: Sessions, amount: 1, never: true, want: `ToolBudget "b" lets no session have a pod (maxSessions is 0)`},
		"no CPU time":          {limit: func(a *Amounts) { a[CPUMilliseconds] = 0 }, what: Calls, amount: 1, never: true, want: `ToolBudget "b" gives no CPU time (cpuSecondsPerHour is 0)`},
		"no limit":             {limit: func(*Amounts) {}, what: Calls, before: 1 << 40, amount: 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t, LedgerSnapshot{Rules: []Rule{rule("b", "", test.limit)}})
			if test.before > 0 && b.Ask(test.what, holder("u", 1), test.before) != nil {
				t.Fatal("the first has no room")
			}
			e := b.Ask(test.what, holder("u", 2), test.amount)
			if e == nil {
				e = &Excess{}
			}
			if got := e; test.want == "" && got.Budget != "" || test.want != "" && (got.Message() != test.want || got.Never != test.never) {
				t.Errorf("got %+v, want %q", got, test.want)
			}
			b.Release(named("u1"), test.what)
			if woken := slices.Equal(b.woken, []string{"u2"}); woken != (test.want != "" && !test.never) {
				t.Errorf("woken: %q", b.woken)
			}
		})
	}
}

// A user at a limit of their own doesn't hold up the others of a budget that they share.
func TestWhoWaitsForOneBudgetHoldsUpNobodyInAnother(t *testing.T) {
	t.Parallel()
	b := newBooks(t, LedgerSnapshot{Rules: []Rule{rule("alice", "alice", callsAtMost(1)), rule("all", "", callsAtMost(3))}})
	if !b.ask("alice", 1) || b.ask("alice", 2) || b.ask("alice", 3) || !b.ask("bob", 4) || !b.ask("bob", 5) || b.ask("bob", 6) {
		t.Error("somebody got what they may not have, or didn't get what they may")
	}
	if diff := cmp.Diff([]int64{1, 3}, []int64{b.used(t, "alice")[Calls], b.used(t, "all")[Calls]}); diff != "" {
		t.Error(diff)
	}
	b.Release(named("bob4"), Calls)
	b.Release(named("alice1"), Calls)
	if want := []string{"bob6", "alice2"}; !slices.Equal(b.woken, want) {
		t.Errorf("woken: %q, want %q", b.woken, want)
	}
	if !b.ask("alice", 2) || !b.ask("bob", 6) || b.ask("alice", 3) {
		t.Error("who was woken has nothing, or others have")
	}
}

// Calls are let in in the order of their creation, whichever asks first, and a large input isn't overtaken for ever by small ones.
func TestWhoCameFirstIsLetInFirst(t *testing.T) {
	t.Parallel()
	b := newBooks(t, LedgerSnapshot{Rules: []Rule{rule("b", "", func(a *Amounts) { a[PendingBytes], a[Calls] = 10, 1 })}})
	b.ask("u", 1)
	for _, n := range []int{4, 2, 3} {
		b.ask("u", n)
	}
	for n := range 4 {
		b.Release(named(fmt.Sprint("u", n+1)), Calls)
	}
	if want := []string{"u2", "u3", "u4"}; !slices.Equal(b.woken, want) {
		t.Errorf("woken: %q", b.woken)
	}
	small := func(n int) bool { return b.Ask(PendingBytes, holder("v", n), 4) == nil }
	if !small(1) || b.Ask(PendingBytes, holder("v", 2), 10) == nil || small(3) {
		t.Error("a small input overtakes a large one")
	}
}

// Two hundred at once under a limit of five: never are there more than five, and each gets its place in the end.
func TestCallsAskAtTheSameTime(t *testing.T) {
	t.Parallel()
	const limit, all = 5, 200
	woken := make(chan types.NamespacedName, all)
	l := NewLedger(time.Now, func(_ Resource, name types.NamespacedName) { woken <- name })
	if err := l.Seed(t.Context(), "ns", func(context.Context) (LedgerSnapshot, error) {
		return LedgerSnapshot{Rules: []Rule{rule("b", "", callsAtMost(limit))}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	var running atomic.Int64
	run := func(name types.NamespacedName) {
		if n := running.Add(1); n > limit {
			t.Errorf("%d have a place", n)
		}
		running.Add(-1)
		l.Release(name, Calls)
	}
	var asking sync.WaitGroup
	var waited atomic.Int64
	for n := range all {
		asking.Go(func() {
			if h := holder("u", n); l.Ask(Calls, h, 1) == nil {
				run(h.Name)
			} else {
				waited.Add(1)
			}
		})
	}
	asking.Wait()
	for range waited.Load() {
		run(<-woken)
	}
	if used, _ := l.Used(named("b")); used != (Amounts{}) {
		t.Errorf("left are %v", used)
	}
}

func TestCPUTimeOfTheLastHourKeepsCallsWaiting(t *testing.T) {
	t.Parallel()
	b := newBooks(t, LedgerSnapshot{})
	at := b.at
	b.woken = nil
	if err := b.Seed(t.Context(), "ns", func(context.Context) (LedgerSnapshot, error) {
		return LedgerSnapshot{
			Rules: []Rule{rule("b", "u", func(a *Amounts) { a[CPUMilliseconds] = 10_000 })},
			Spent: []Spent{spent("u", at.Add(-2*time.Hour), 99_000), spent("u", at.Add(-30*time.Minute), 9_000), spent("v", at, 99_000)},
		}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if !b.ask("u", 1) {
		t.Fatal("9 of 10 seconds are used, and a call has to wait")
	}
	b.Spend("ns", spent("u", at.Add(10*time.Second), 2_000))
	if used := b.used(t, "b")[CPUMilliseconds]; used != 11_000 {
		t.Errorf("%d ms are used", used)
	}
	e := b.Ask(Calls, holder("u", 2), 1)
	passes := at.Add(31 * time.Minute)
	if e == nil || !e.Until.Equal(passes) || e.Message() != `ToolBudget "b" gives 10 seconds of CPU time in an hour (cpuSecondsPerHour), and they are used: the call waits until `+passes.UTC().Format(time.RFC3339) {
		t.Fatalf("got %+v", e)
	}
	b.at = passes.Add(-time.Second)
	if b.ask("u", 2) {
		t.Error("it doesn't wait for as long as it says")
	}
	b.at = passes
	if !b.ask("u", 2) || !b.ask("v", 3) {
		t.Error("it waits for longer than it says")
	}
	b.at = at.Add(61 * time.Minute)
	if used := b.used(t, "b")[CPUMilliseconds]; used != 0 {
		t.Errorf("after an hour, %d ms are used", used)
	}
	b.Spend("ns", spent("u", b.at, 1))
	if a := b.namespaces["ns"]; len(a.spent) != 1 || len(a.budgets["b"].cpu) != 1 {
		t.Errorf("left are %v, %v", a.spent, a.budgets["b"].cpu)
	}
}

// A call's end is seen by the pass that writes it, by those that find it written, and by the read of what has ended, in any order.
func TestTheCPUTimeOfACallCountsOnce(t *testing.T) {
	t.Parallel()
	rules := []Rule{rule("b", "", func(a *Amounts) { a[CPUMilliseconds] = 10_000 })}
	b := newBooks(t, LedgerSnapshot{})
	before, during, after := spent("u", b.at, 1), spent("u", b.at, 20), spent("u", b.at, 300)
	if err := b.Seed(t.Context(), "ns", func(context.Context) (LedgerSnapshot, error) {
		b.Spend("ns", during)
		return LedgerSnapshot{Rules: rules, Spent: []Spent{before, before, during}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for minutes := range 60 {
		b.at = b.at.Add(time.Duration(minutes%2) * time.Minute)
		for _, s := range []Spent{before, during, after} {
			b.Spend("ns", s)
		}
		if used := b.used(t, "b")[CPUMilliseconds]; used != 321 {
			t.Fatalf("%d ms are used", used)
		}
	}
	b.SetBudget("ns", rule("b", "", func(a *Amounts) { a[CPUMilliseconds] = 9_000 }))
	if used := b.used(t, "b")[CPUMilliseconds]; used != 321 {
		t.Errorf("by a budget that has changed, %d ms are used", used)
	}
}

func TestAChangedBudgetIsSeenByThoseWhoWait(t *testing.T) {
	t.Parallel()
	b := newBooks(t, LedgerSnapshot{Rules: []Rule{rule("b", "", callsAtMost(1))}, Running: []Holder{holder("u", 1)}})
	b.ask("u", 2)
	b.ask("u", 3)
	b.SetBudget("ns", rule("b", "", callsAtMost(2)))
	if !slices.Equal(b.woken, []string{"u2", "u3"}) || !b.ask("u", 2) || b.ask("u", 3) {
		t.Errorf("woken: %q", b.woken)
	}
	b.woken = nil
	b.SetBudget("ns", b.namespaces["ns"].budgets["b"].Rule)
	if len(b.woken) > 0 {
		t.Errorf("a budget that is as it was wakes %q", b.woken)
	}
	// Another one that covers what runs already counts that.
	b.SetBudget("ns", rule("other", "u", callsAtMost(2)))
	if used := b.used(t, "other")[Calls]; used != 2 {
		t.Errorf("%d run", used)
	}
	b.woken = nil
	b.SetBudget("ns", rule("b", "nobody", callsAtMost(0)))
	b.RemoveBudget(named("other"))
	if !slices.Contains(b.woken, "u3") || !b.ask("u", 3) {
		t.Errorf("woken: %q", b.woken)
	}
	b.RemoveBudget(named("b"))
	if len(b.namespaces) != 0 || !b.ask("u", 4) {
		t.Error("a namespace without budgets isn't forgotten")
	}
}

// What an operator before this one let in counts, whatever the limits are.
func TestWhatWasLetInBeforeCounts(t *testing.T) {
	t.Parallel()
	b := &books{at: time.Unix(0, 0)}
	b.Ledger = NewLedger(func() time.Time { return b.at }, func(_ Resource, name types.NamespacedName) { b.woken = append(b.woken, name.Name) })
	broken := errors.New("broken")
	if err := b.Seed(t.Context(), "ns", func(context.Context) (LedgerSnapshot, error) { return LedgerSnapshot{}, broken }); !errors.Is(err, broken) || len(b.namespaces) != 0 {
		t.Fatalf("seeded from a failed read: %v", err)
	}
	for range 2 {
		err := b.Seed(t.Context(), "ns", func(context.Context) (LedgerSnapshot, error) {
			b.Release(named("u1"), Calls)
			b.RemoveBudget(named("gone"))
			return LedgerSnapshot{
				Rules:   []Rule{rule("b", "", callsAtMost(2)), rule("gone", "", callsAtMost(0))},
				Running: []Holder{holder("u", 1), holder("u", 2), holder("u", 3), holder("u", 4)}, Sessions: []Holder{holder("s", 1)},
				Pending: []Pending{{holder("u", 5), 7}},
			}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if used := b.used(t, "b"); used != (Amounts{3, 7, 1, 0}) {
		t.Errorf("in use are %v", used)
	}
	if b.ask("u", 5) {
		t.Error("a call is let in over the limit")
	}
	b.SetRunning(holder("u", 3))
	if b.ask("u", 4) {
		t.Error("a call that asks although it was let in has a place")
	}
	b.Release(named("u2"), Calls, PendingBytes)
	if !slices.Equal(b.woken, []string{"u4"}) {
		t.Errorf("woken: %q", b.woken)
	}
}

// model is the ledger's calls in the plainest form: all is counted anew each time.
type model struct {
	rules         []Rule
	held, waiting []Holder
}

func (m *model) covering(h Holder) (rules []Rule) {
	for _, r := range m.rules {
		if r.Covers(h.User, nil) {
			rules = append(rules, r)
		}
	}
	return rules
}

func (m *model) used(r Rule) (n int64) {
	for _, h := range m.held {
		if r.Covers(h.User, nil) {
			n++
		}
	}
	return n
}

func (m *model) drop(name types.NamespacedName) {
	is := func(h Holder) bool { return h.Name == name }
	m.held, m.waiting = slices.DeleteFunc(m.held, is), slices.DeleteFunc(m.waiting, is)
}

func (m *model) grant() {
	slices.SortFunc(m.waiting, func(a, b Holder) int {
		return stdcmp.Or(int(a.Revision-b.Revision), strings.Compare(a.Name.Name, b.Name.Name))
	})
	for _, h := range slices.Clone(m.waiting) {
		if !slices.ContainsFunc(m.covering(h), func(r Rule) bool { return m.used(r) >= r.Limits[Calls] }) {
			m.drop(h.Name)
			m.held = append(m.held, h)
		}
	}
}

// Whatever happens in whatever order, the ledger has let in those that the model has, and wakes each of them that waited.
func TestTheLedgerAgreesWithAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 9))
		limits := func() func(*Amounts) { return callsAtMost(1 + random.Int64N(5)) }
		m := &model{rules: []Rule{rule("all", "", limits()), rule("b", "a", limits()), rule("c", "c", limits())}}
		b := newBooks(t, LedgerSnapshot{Rules: m.rules})
		for step := range 300 {
			h := holder([]string{"a", "b", "c", "ab"}[random.IntN(4)], random.IntN(20))
			isHeld := slices.ContainsFunc(m.held, func(o Holder) bool { return o.Name == h.Name })
			switch random.IntN(8) {
			case 0, 1, 2, 3:
				if isWaiting := slices.ContainsFunc(m.waiting, func(o Holder) bool { return o.Name == h.Name }); !isHeld && !isWaiting {
					m.waiting = append(m.waiting, h)
				}
				b.Ask(Calls, h, 1)
			case 4, 5:
				m.drop(h.Name)
				b.Release(h.Name, Calls)
			case 6:
				if !isHeld {
					m.drop(h.Name)
					m.held = append(m.held, h)
				}
				b.SetRunning(h)
			default:
				i := random.IntN(3)
				m.rules[i] = rule(m.rules[i].Name, []string{"", "a", "c"}[i], limits())
				b.SetBudget("ns", m.rules[i])
				b.SetBudget("ns", m.rules[i])
			}
			m.grant()
			b.compare(t, fmt.Sprintf("seed %d, step %d", seed, step), m)
		}
		for _, h := range slices.Concat(m.held, m.waiting) {
			b.Release(h.Name, Calls)
		}
		for _, r := range m.rules {
			if used := b.used(t, r.Name); used != (Amounts{}) {
				t.Errorf("seed %d: left are %v", seed, used)
			}
		}
	}
}

func (b *books) compare(t *testing.T, when string, m *model) {
	t.Helper()
	a := b.namespaces["ns"]
	if len(a.held[Calls]) != len(m.held) || len(a.waiting[Calls]) != len(m.waiting) {
		t.Fatalf("%s: %d have a place and %d wait, want %d and %d", when, len(a.held[Calls]), len(a.waiting[Calls]), len(m.held), len(m.waiting))
	}
	for _, h := range m.held {
		if a.held[Calls][h.Name] == nil {
			t.Fatalf("%s: %s has no place", when, h.Name.Name)
		}
	}
	for _, r := range m.rules {
		if got, want := b.used(t, r.Name)[Calls], m.used(r); got != want {
			t.Fatalf("%s: %d are in use of %s, want %d", when, got, r.Name, want)
		}
	}
}

// A call that waits for another one to end isn't told when the CPU time is used up meanwhile: it is woken, and then knows until when.
func TestCallsThatWaitLearnThatTheCPUTimeIsUsedUp(t *testing.T) {
	t.Parallel()
	b := newBooks(t, LedgerSnapshot{Rules: []Rule{
		rule("calls", "", callsAtMost(1)),
		rule("cpu", "", func(a *Amounts) { a[CPUMilliseconds] = 1000 }),
		rule("later", "", func(a *Amounts) { a[CPUMilliseconds] = 500 }),
	}})
	b.ask("a", 1)
	b.ask("a", 2)
	b.Spend("ns", spent("a", b.at, 600))
	if want := []string{"a2"}; !slices.Equal(b.woken, want) {
		t.Errorf("woken: %q, want %q", b.woken, want)
	}
	b.woken = nil
	b.Spend("ns", spent("a", b.at, 100))
	if len(b.woken) > 0 {
		t.Errorf("woken for nothing: %q", b.woken)
	}
	excess := b.Ask(Calls, holder("a", 2), 1)
	if excess == nil || excess.Budget != "calls" || !excess.Until.Equal(b.at.Add(61*time.Minute)) {
		t.Fatalf("it waits for %+v", excess)
	}
	b.at = b.at.Add(5 * time.Minute)
	b.Spend("ns", spent("a", b.at, 5000))
	b.Release(named("a1"), Calls)
	excess = b.Ask(Calls, holder("a", 2), 1)
	if excess == nil || excess.Resource != CPUMilliseconds || !excess.Until.Equal(b.at.Add(61*time.Minute)) {
		t.Fatalf("it waits for %+v, want all budgets to have passed", excess)
	}
	b.at = excess.Until
	if !b.ask("a", 2) {
		t.Error("it waits for CPU time that is in the past")
	}
}

// Who asks while what is in use is read doesn't wait for that.
func TestAskingDuringALongReadDoesNotWait(t *testing.T) {
	t.Parallel()
	l := NewLedger(time.Now, func(Resource, types.NamespacedName) {})
	read := func(context.Context) (LedgerSnapshot, error) {
		none := func(context.Context) (LedgerSnapshot, error) { return LedgerSnapshot{}, errors.New("read twice") }
		if err := l.Seed(t.Context(), "ns", none); !errors.Is(err, ErrSeeding) {
			t.Errorf("got %v", err)
		}
		return LedgerSnapshot{Rules: []Rule{rule("b", "", callsAtMost(1))}}, nil
	}
	if err := l.Seed(t.Context(), "ns", read); err != nil {
		t.Fatal(err)
	}
}
