package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// windowMinutes is for how many whole minutes CPU counts after the one in which it was spent: for an hour at least.
const windowMinutes = 60

// Spent is the CPU of a call that has ended. It counts once, by the call's UID.
type Spent struct {
	Call         types.UID
	User         string
	Groups       []string
	Ended        time.Time
	Milliseconds int64
}

// expenses are the CPU that was spent in one minute, by user, and the calls that it was spent by.
type expenses struct {
	calls map[types.UID]struct{}
	by    map[spender]int64
}

// spender is a user, with the groups joined.
type spender struct{ user, groups string }

func minuteOf(at time.Time) int64 { return at.Unix() / 60 }

// spend counts the CPU of a call that isn't counted yet, and forgets what is too long ago. What a wall clock says too early counts from
// now. It says whether that was the last of a budget's.
func (a *accounts) spend(s Spent, now time.Time) (exhausts bool) {
	minute, first := min(minuteOf(s.Ended), minuteOf(now)), minuteOf(now)-windowMinutes
	maps.DeleteFunc(a.spent, func(minute int64, _ *expenses) bool { return minute < first })
	if minute < first || a.isCounted(s.Call) {
		return false
	}
	in := a.spent[minute]
	if in == nil {
		in = &expenses{map[types.UID]struct{}{}, map[spender]int64{}}
		a.spent[minute] = in
	}
	in.calls[s.Call] = struct{}{}
	in.by[spender{s.User, strings.Join(s.Groups, "\x00")}] += s.Milliseconds
	for _, b := range a.budgets {
		maps.DeleteFunc(b.cpu, func(minute, _ int64) bool { return minute < first })
		if b.Covers(s.User, s.Groups) {
			wasSpent := b.isCPUSpent(now)
			b.cpu[minute] += s.Milliseconds
			exhausts = exhausts || !wasSpent && b.isCPUSpent(now)
		}
	}
	return exhausts
}

// isCounted says that the CPU of a call counts already.
func (a *accounts) isCounted(call types.UID) bool {
	for _, in := range a.spent {
		if _, counted := in.calls[call]; counted {
			return true
		}
	}
	return false
}

// spent is the CPU of the last hour.
func (b *account) spent(now time.Time) (sum int64) {
	for minute, milliseconds := range b.cpu {
		if minute >= minuteOf(now)-windowMinutes {
			sum += milliseconds
		}
	}
	return sum
}

// passes is when less than the limit will be of the last hour, if no more is spent.
func (b *account) passes(now time.Time) time.Time {
	left := b.spent(now)
	for _, minute := range slices.Sorted(maps.Keys(b.cpu)) {
		if minute < minuteOf(now)-windowMinutes {
			continue
		}
		if left -= b.cpu[minute]; left < b.Limits[CPUMilliseconds] {
			return time.Unix((minute+windowMinutes+1)*60, 0).UTC()
		}
	}
	return time.Time{}
}

// LedgerSnapshot is what the API says about a namespace.
type LedgerSnapshot struct {
	Rules []Rule
	// Running are the calls that hold a place, or may, Sessions those that have a pod.
	Running, Sessions []Holder
	// Pending are the calls that were let in and have not started, with the size of their input.
	Pending []Pending
	Spent   []Spent
}

// ErrSeeding says that what is in use in a namespace is being read.
var ErrSeeding = errors.New("what is in use of the namespace's budgets is being read")

// SeedingPause is after how long to ask again then.
const SeedingPause = time.Second

// Seed makes a namespace's budgets known, and what is in use of them, once; afterwards it returns at once. What is in use counts whatever
// the limits are. The read holds no lock. It may take long: who asks during it gets ErrSeeding at once, and has to ask again, as after an
// error. What is released meanwhile isn't taken from the snapshot, which may be older than what was released before it, as long as that
// is released again when the newer state arrives.
func (l *Ledger) Seed(ctx context.Context, namespace string, read func(context.Context) (LedgerSnapshot, error)) error {
	a, err := l.beginSeed(namespace)
	if err != nil || a == nil {
		return err
	}
	var snapshot LedgerSnapshot
	isRead := false
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.seeding = false
		if isRead {
			a.apply(snapshot, l.now())
		}
		if len(a.budgets) == 0 {
			// It has none any more, or they couldn't be read.
			delete(l.namespaces, namespace)
		}
	}()
	snapshot, err = read(ctx)
	isRead = err == nil
	return err
}

// beginSeed gives the accounts of a namespace to who is to seed them; nil when they are.
func (l *Ledger) beginSeed(namespace string) (*accounts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.namespaces[namespace]
	if a == nil {
		a = newAccounts()
		l.namespaces[namespace] = a
	}
	switch {
	case a.seeded:
		return nil, nil
	case a.seeding:
		return nil, ErrSeeding
	}
	a.seeding = true
	return a, nil
}

// apply adds what a snapshot says. What is known already is newer, and stays.
func (a *accounts) apply(snapshot LedgerSnapshot, now time.Time) {
	a.seeded = true
	for _, rule := range snapshot.Rules {
		if _, isGone := a.removed[rule.Name]; !isGone {
			a.setBudget(rule)
		}
	}
	a.count()
	for _, h := range snapshot.Running {
		a.seed(Calls, &holding{Holder: h, amount: 1, isAssumed: true})
	}
	for _, h := range snapshot.Sessions {
		a.seed(Sessions, &holding{Holder: h, amount: 1})
	}
	for _, h := range snapshot.Pending {
		a.seed(PendingBytes, &holding{Holder: h.Holder, amount: h.Bytes})
	}
	for _, s := range snapshot.Spent {
		a.spend(s, now)
	}
	for what := range a.released {
		clear(a.released[what])
	}
	clear(a.removed)
}

func (a *accounts) seed(what Resource, h *holding) {
	if _, isReleased := a.released[what][h.Name]; !isReleased && a.held[what][h.Name] == nil {
		a.hold(what, h)
	}
}
