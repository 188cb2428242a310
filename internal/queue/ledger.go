package queue

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/fair"
)

// Resource is what a ToolBudget bounds.
type Resource int

// Resources. CPU is spent, not held: it bounds how many calls may start.
const (
	// Calls are those that run, or that wait for no budget any more.
	Calls Resource = iota
	// PendingBytes is the input of calls that have not started.
	PendingBytes
	// Sessions are those that have a pod.
	Sessions
	// CPUMilliseconds is what calls of the last hour used.
	CPUMilliseconds

	resources
)

// Amounts has one of each Resource.
type Amounts [resources]int64

// Unlimited bounds nothing.
func Unlimited() Amounts {
	return Amounts{fair.Unbounded, fair.Unbounded, fair.Unbounded, fair.Unbounded}
}

// Rule is a budget as the ledger knows it.
type Rule struct {
	// Version is another one when something else of the rule is.
	Name, Version string
	Limits        Amounts
	// Covers says whether what a user has counts. It must be pure.
	Covers func(user string, groups []string) bool
}

// BoundsCPU says that the budget bounds how much CPU is used.
func (r Rule) BoundsCPU() bool { return r.Limits[CPUMilliseconds] != fair.Unbounded }

// Excess says which budget keeps somebody waiting, or refuses it for good.
type Excess struct {
	Budget   string
	Resource Resource
	// Limit is the budget's, Amount what was asked for.
	Limit, Amount int64
	// Never says that waiting doesn't help. Until is when enough CPU of the last hour is in the past, for all budgets that lack it; zero
	// when none does.
	Never bool
	Until time.Time
}

// Ledger counts what calls and sessions of each namespace hold of its budgets. Who asks gets all that it needs or nothing, and then waits;
// those that wait get theirs in the order of their creation, but for those that another budget keeps waiting. It knows only namespaces
// that have budgets, keeps its state in memory, and is safe for concurrent use. Seed rebuilds a namespace from the API.
type Ledger struct {
	now  func() time.Time
	wake func(Resource, types.NamespacedName)

	mu         sync.Mutex
	namespaces map[string]*accounts
}

// NewLedger makes an empty one. It calls wake, without a lock held, for who has waited and has got what it asked for, and for all who wait
// when a budget changes.
func NewLedger(now func() time.Time, wake func(Resource, types.NamespacedName)) *Ledger {
	return &Ledger{now: now, wake: wake, namespaces: map[string]*accounts{}}
}

// Ask gives a holder an amount of calls, sessions or pending bytes, or says which budget it waits for; nil for what it has. Asking again
// changes nothing. Seed has to succeed for the namespace before.
func (l *Ledger) Ask(what Resource, holder Holder, amount int64) *Excess {
	l.mu.Lock()
	a := l.namespaces[holder.Name.Namespace]
	if a == nil {
		l.mu.Unlock()
		return nil
	}
	if h := a.held[what][holder.Name]; h != nil && h.UID == holder.UID && !h.isAssumed {
		l.mu.Unlock()
		return nil
	}
	now := l.now()
	a.join(what, holder, amount)
	granted := a.grant(what, now)
	excess := a.excess(what, holder.Name, now)
	if excess != nil && excess.Never {
		a.leave(what, holder.Name)
		granted = append(granted, a.grant(what, now)...)
	}
	l.mu.Unlock()
	l.wakeAll(what, slices.DeleteFunc(granted, func(name types.NamespacedName) bool { return name == holder.Name }))
	return excess
}

// SetRunning says that a call runs already, whatever the limits are.
func (l *Ledger) SetRunning(holder Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.namespaces[holder.Name.Namespace]
	if a == nil {
		return
	}
	if h := a.held[Calls][holder.Name]; h != nil && h.UID == holder.UID {
		h.isAssumed = false
		return
	}
	a.leave(Calls, holder.Name)
	a.hold(Calls, &holding{Holder: holder, amount: 1})
}

// Release says that somebody doesn't have, or want, something any more.
func (l *Ledger) Release(name types.NamespacedName, whats ...Resource) {
	for _, what := range whats {
		l.update(name, what, func(a *accounts) bool {
			if a.seeding {
				a.released[what][name] = struct{}{}
			}
			return a.leave(what, name)
		})
	}
}

// update does something that may make room, and gives that to those that wait.
func (l *Ledger) update(name types.NamespacedName, what Resource, do func(*accounts) (makesRoom bool)) {
	l.mu.Lock()
	a := l.namespaces[name.Namespace]
	if a == nil {
		l.mu.Unlock()
		return
	}
	var granted []types.NamespacedName
	if do(a) {
		granted = a.grant(what, l.now())
	}
	l.mu.Unlock()
	l.wakeAll(what, granted)
}

// Spend counts the CPU of a call that has ended, however often it is said. Calls that wait are woken when that is the last of a budget's:
// what they wait for from now on is a time.
func (l *Ledger) Spend(namespace string, s Spent) {
	l.mu.Lock()
	var woken []types.NamespacedName
	if a := l.namespaces[namespace]; a != nil && a.spend(s, l.now()) {
		woken = a.waitingFor(Calls)
	}
	l.mu.Unlock()
	l.wakeAll(Calls, woken)
}

// Used is what is in use of a budget; not ok when the ledger doesn't know it.
func (l *Ledger) Used(budget types.NamespacedName) (used Amounts, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.namespaces[budget.Namespace]
	if a == nil || a.budgets[budget.Name] == nil {
		return used, false
	}
	b := a.budgets[budget.Name]
	used = b.used
	used[CPUMilliseconds] = b.spent(l.now())
	return used, true
}

// SetBudget makes a namespace's budget known, or known anew, once the namespace is seeded.
func (l *Ledger) SetBudget(namespace string, rule Rule) {
	l.change(namespace, func(a *accounts) bool {
		if known := a.budgets[rule.Name]; known != nil && known.Version == rule.Version {
			return false
		}
		a.setBudget(rule)
		return true
	})
}

// RemoveBudget says that a budget was deleted. A namespace without budgets is forgotten.
func (l *Ledger) RemoveBudget(budget types.NamespacedName) {
	l.change(budget.Namespace, func(a *accounts) bool {
		if a.seeding {
			a.removed[budget.Name] = struct{}{}
		}
		delete(a.budgets, budget.Name)
		if a.seeded && len(a.budgets) == 0 {
			delete(l.namespaces, budget.Namespace)
		}
		return true
	})
}

// change has all look again who wait in a namespace, since what they are told has changed.
func (l *Ledger) change(namespace string, do func(*accounts) bool) {
	l.mu.Lock()
	a := l.namespaces[namespace]
	if a == nil || !do(a) {
		l.mu.Unlock()
		return
	}
	var woken [resources][]types.NamespacedName
	for what := range a.waiting {
		woken[what] = a.waitingFor(Resource(what))
	}
	a.count()
	for what := range a.waiting {
		a.grant(Resource(what), l.now())
	}
	l.mu.Unlock()
	for what, names := range woken {
		l.wakeAll(Resource(what), names)
	}
}

func (l *Ledger) wakeAll(what Resource, names []types.NamespacedName) {
	for _, name := range names {
		l.wake(what, name)
	}
}
