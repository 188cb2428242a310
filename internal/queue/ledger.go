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

// woken are those to be woken, by what they ask for.
type woken [resources][]types.NamespacedName

// with does something with the accounts of a namespace that has budgets, and then wakes those whom it names.
func (l *Ledger) with(namespace string, do func(*accounts) woken) {
	l.mu.Lock()
	var all woken
	if a := l.namespaces[namespace]; a != nil {
		all = do(a)
	}
	l.mu.Unlock()
	for what, names := range all {
		for _, name := range names {
			l.wake(Resource(what), name)
		}
	}
}

// Ask gives a holder an amount of calls, sessions or pending bytes, or says which budget it waits for; nil for what it has. Asking again
// changes nothing. Seed has to succeed for the namespace before.
func (l *Ledger) Ask(what Resource, holder Holder, amount int64) (excess *Excess) {
	l.with(holder.Name.Namespace, func(a *accounts) (w woken) {
		if h := a.held[what][holder.Name]; h != nil && h.UID == holder.UID && !h.isAssumed {
			return w
		}
		now := l.now()
		a.join(what, holder, amount)
		granted := a.grant(what, now)
		if excess = a.excess(what, holder.Name, now); excess != nil && excess.Never {
			a.leave(what, holder.Name)
			granted = append(granted, a.grant(what, now)...)
		}
		w[what] = slices.DeleteFunc(granted, func(name types.NamespacedName) bool { return name == holder.Name })
		return w
	})
	return excess
}

// SetRunning says that a call runs already, whatever the limits are.
func (l *Ledger) SetRunning(holder Holder) {
	l.with(holder.Name.Namespace, func(a *accounts) (w woken) {
		if h := a.held[Calls][holder.Name]; h != nil && h.UID == holder.UID {
			h.isAssumed = false
			return w
		}
		a.leave(Calls, holder.Name)
		a.hold(Calls, &holding{Holder: holder, amount: 1})
		return w
	})
}

// Release says that somebody doesn't have, or want, something any more.
func (l *Ledger) Release(name types.NamespacedName, whats ...Resource) {
	l.with(name.Namespace, func(a *accounts) (w woken) {
		for _, what := range whats {
			if a.seeding {
				a.released[what][name] = struct{}{}
			}
			if a.leave(what, name) {
				w[what] = a.grant(what, l.now())
			}
		}
		return w
	})
}

// Spend counts the CPU of a call that has ended, however often it is said. Calls that wait are woken when that is the last of a budget's:
// what they wait for from now on is a time.
func (l *Ledger) Spend(namespace string, s Spent) {
	l.with(namespace, func(a *accounts) (w woken) {
		if a.spend(s, l.now()) {
			w[Calls] = a.waitingFor(Calls)
		}
		return w
	})
}

// Used is what is in use of a budget; not ok when the ledger doesn't know it.
func (l *Ledger) Used(budget types.NamespacedName) (used Amounts, ok bool) {
	l.with(budget.Namespace, func(a *accounts) (w woken) {
		if b := a.budgets[budget.Name]; b != nil {
			used, ok = b.used, true
			used[CPUMilliseconds] = b.spent(l.now())
		}
		return w
	})
	return used, ok
}

// SetBudget makes a namespace's budget known, or known anew, once the namespace is seeded.
func (l *Ledger) SetBudget(namespace string, rule Rule) {
	l.with(namespace, func(a *accounts) (w woken) {
		if known := a.budgets[rule.Name]; known != nil && known.Version == rule.Version {
			return w
		}
		a.setBudget(rule)
		return a.countAnew(l.now())
	})
}

// RemoveBudget says that a budget was deleted. A namespace without budgets is forgotten.
func (l *Ledger) RemoveBudget(budget types.NamespacedName) {
	l.with(budget.Namespace, func(a *accounts) woken {
		if a.seeding {
			a.removed[budget.Name] = struct{}{}
		}
		delete(a.budgets, budget.Name)
		if a.seeded && len(a.budgets) == 0 {
			delete(l.namespaces, budget.Namespace)
		}
		return a.countAnew(l.now())
	})
}
