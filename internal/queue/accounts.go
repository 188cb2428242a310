package queue

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/fair"
)

// accounts are those of one namespace that has budgets. Their methods need the lock of the Ledger.
type accounts struct {
	// seeding says that the namespace is being read, seeded that it was.
	seeding, seeded bool
	// released and removed are what was said of holders and budgets while the namespace was read.
	released [resources]map[types.NamespacedName]struct{}
	removed  map[string]struct{}

	budgets map[string]*account
	held    [resources]map[types.NamespacedName]*holding
	// waiting are those that asked and got nothing, in order.
	waiting [resources][]*holding
	// spent is the CPU of the last hour, by minute.
	spent map[int64]*expenses
}

// account is a budget and what is in use of it. cpu has what was spent in each minute.
type account struct {
	Rule
	used Amounts
	cpu  map[int64]int64
}

// holding is what somebody has, or waits for.
type holding struct {
	Holder
	amount int64
	// isAssumed says that an operator before this one probably let the call in. A call that asks again was not let in.
	isAssumed bool
	// budgets are those that cover it.
	budgets []*account
}

func newAccounts() *accounts {
	a := &accounts{budgets: map[string]*account{}, removed: map[string]struct{}{}, spent: map[int64]*expenses{}}
	for what := range a.held {
		a.held[what], a.released[what] = map[types.NamespacedName]*holding{}, map[types.NamespacedName]struct{}{}
	}
	return a
}

func (a *accounts) setBudget(rule Rule) {
	a.budgets[rule.Name] = &account{Rule: rule, cpu: map[int64]int64{}}
}

// count works out anew who is covered by which budget, and what is in use.
func (a *accounts) count() {
	for _, b := range a.budgets {
		b.used, b.cpu = Amounts{}, map[int64]int64{}
	}
	for what := range a.held {
		for _, h := range a.held[what] {
			a.cover(h)
			h.add(Resource(what), h.amount)
		}
		waiting := a.waiting[what]
		a.waiting[what] = nil
		for _, h := range waiting {
			a.enter(Resource(what), h)
		}
	}
	for minute, in := range a.spent {
		for s, milliseconds := range in.by {
			a.addCPU(minute, s, milliseconds)
		}
	}
}

// countAnew does so after budgets have changed. All have to look again who waited, since what they are told has changed.
func (a *accounts) countAnew(now time.Time) (w woken) {
	for what := range a.waiting {
		w[what] = a.waitingFor(Resource(what))
	}
	a.count()
	for what := range a.waiting {
		a.grant(Resource(what), now)
	}
	return w
}

// addCPU counts what a user spent in a minute in the budgets that cover the user.
func (a *accounts) addCPU(minute int64, s spender, milliseconds int64) {
	for _, b := range a.budgets {
		if b.Covers(s.user, strings.Split(s.groups, "\x00")) {
			b.cpu[minute] += milliseconds
		}
	}
}

// cover finds the budgets of a holding, in the order of their names.
func (a *accounts) cover(h *holding) {
	h.budgets = nil
	for _, name := range slices.Sorted(maps.Keys(a.budgets)) {
		if b := a.budgets[name]; b.Covers(h.User, h.Groups) {
			h.budgets = append(h.budgets, b)
		}
	}
}

func (h *holding) add(what Resource, amount int64) {
	for _, b := range h.budgets {
		b.used[what] += amount
	}
}

func (a *accounts) hold(what Resource, h *holding) {
	a.cover(h)
	a.held[what][h.Name] = h
	h.add(what, h.amount)
}

// join has somebody wait who doesn't yet.
func (a *accounts) join(what Resource, holder Holder, amount int64) {
	if i := a.place(what, holder.Name); i >= 0 && a.waiting[what][i].UID == holder.UID {
		return
	}
	a.leave(what, holder.Name)
	a.enter(what, &holding{Holder: holder, amount: amount})
}

// enter has somebody wait, unless no budget covers that.
func (a *accounts) enter(what Resource, h *holding) {
	if a.cover(h); len(h.budgets) == 0 {
		a.held[what][h.Name] = h
		return
	}
	i, _ := slices.BinarySearchFunc(a.waiting[what], h, func(a, b *holding) int { return compareCreation(a.Holder, b.Holder) })
	a.waiting[what] = slices.Insert(a.waiting[what], i, h)
}

// place is where somebody waits; -1 for nowhere.
func (a *accounts) place(what Resource, name types.NamespacedName) int {
	return slices.IndexFunc(a.waiting[what], func(h *holding) bool { return h.Name == name })
}

// waitingFor are the names of those that wait.
func (a *accounts) waitingFor(what Resource) (names []types.NamespacedName) {
	for _, h := range a.waiting[what] {
		names = append(names, h.Name)
	}
	return names
}

// leave takes away what somebody has, or waits for. It says whether there was anything.
func (a *accounts) leave(what Resource, name types.NamespacedName) bool {
	if h := a.held[what][name]; h != nil {
		delete(a.held[what], name)
		h.add(what, -h.amount)
		return true
	}
	i := a.place(what, name)
	if i >= 0 {
		a.waiting[what] = slices.Delete(a.waiting[what], i, i+1)
	}
	return i >= 0
}

// grant gives those that wait what they asked for, in order. A budget that one of them finds full is closed to those after it, so that
// nobody who wants much is overtaken for ever by those who want little.
func (a *accounts) grant(what Resource, now time.Time) (granted []types.NamespacedName) {
	closed := map[*account]bool{}
	var left []*holding
	for i, h := range a.waiting[what] {
		if len(closed) == len(a.budgets) {
			left = append(left, a.waiting[what][i:]...)
			break
		}
		isFree := true
		for _, b := range h.budgets {
			if closed[b] || b.lacks(what, h.amount, now) {
				closed[b], isFree = true, false
			}
		}
		if !isFree {
			left = append(left, h)
			continue
		}
		a.hold(what, h)
		granted = append(granted, h.Name)
	}
	a.waiting[what] = left
	return granted
}

// lacks says that the budget has less left than an amount, or lets no call start.
func (b *account) lacks(what Resource, amount int64, now time.Time) bool {
	return amount > b.Limits[what]-b.used[what] || what == Calls && b.isCPUSpent(now)
}

func (b *account) isCPUSpent(now time.Time) bool {
	return b.BoundsCPU() && b.spent(now) >= b.Limits[CPUMilliseconds]
}

// excess says what somebody waits for; nil for who doesn't wait. What can never pass comes first.
func (a *accounts) excess(what Resource, name types.NamespacedName, now time.Time) *Excess {
	i := a.place(what, name)
	if i < 0 {
		return nil
	}
	h := a.waiting[what][i]
	for _, b := range h.budgets {
		if h.amount > b.Limits[what] {
			return &Excess{Budget: b.Name, Resource: what, Limit: b.Limits[what], Amount: h.amount, Never: true}
		}
		if what == Calls && b.Limits[CPUMilliseconds] == 0 {
			return &Excess{Budget: b.Name, Resource: CPUMilliseconds, Never: true}
		}
	}
	b, until := h.waitsFor(what, now), h.cpuUntil(what, now)
	if what == Calls && b.isCPUSpent(now) {
		return &Excess{Budget: b.Name, Resource: CPUMilliseconds, Limit: b.Limits[CPUMilliseconds], Amount: h.amount, Until: until}
	}
	return &Excess{Budget: b.Name, Resource: what, Limit: b.Limits[what], Amount: h.amount, Until: until}
}

// cpuUntil is when none of the budgets lacks CPU any more; zero when none does. Nobody but the clock tells a call of that, also one that
// waits for something else first.
func (h *holding) cpuUntil(what Resource, now time.Time) (until time.Time) {
	for _, b := range h.budgets {
		if at := b.passes(now); what == Calls && b.isCPUSpent(now) && at.After(until) {
			until = at
		}
	}
	return until
}

// waitsFor is the first budget that lacks what the holding asks for, or else the first that an earlier one waits for.
func (h *holding) waitsFor(what Resource, now time.Time) *account {
	if i := slices.IndexFunc(h.budgets, func(b *account) bool { return b.lacks(what, h.amount, now) }); i >= 0 {
		return h.budgets[i]
	}
	return h.budgets[max(slices.IndexFunc(h.budgets, func(b *account) bool { return b.Limits[what] != fair.Unbounded }), 0)]
}
