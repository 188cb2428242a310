// Package queue bounds how many calls of an environment run at once, and decides which waiting call starts next. It also
// keeps the order of the calls of each session.
//
// Each environment has a queue. When a slot is free, the requester with the fewest running calls goes next; of equal
// ones, the requester that has waited longest since its last call was admitted. Calls of one requester start in the
// order of their creation. A flood therefore delays its own sender and nobody else. A queue without a limit admits
// every call and counts it, so that a limit that is set later holds at once. Beside that, it is counted what each requester keeps
// pending, over all environments.
//
// SessionQueue has a line for the calls of each session, and another for its background calls. The requester doesn't matter
// there: calls start in the order of their creation, one after another, as long as the session's process has room. A call that
// was handed over and didn't arrive gets its place back. No limit of an environment counts these calls.
//
// Ledger counts what calls and sessions hold of the budgets of their namespace.
//
// The package keeps its state in memory and starts nothing: it reports calls that it admits to a function. After a
// restart the caller says, before the first call asks, what an earlier process let in. Nothing in here may read the
// API while it holds a lock.
package queue

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Holder is a call or a session: who asks for something.
type Holder struct {
	// Name is its namespace and name. UID tells it from an earlier one of that name.
	Name types.NamespacedName
	UID  types.UID
	// User and Groups are the requester's, who created it. Those without a known requester share the empty one.
	User   string
	Groups []string
	// Created and then Revision order those that wait: the creation timestamp, which has whole seconds, and the resource version.
	Created  time.Time
	Revision int64
}

// compareCreation orders holders of one namespace.
func compareCreation(a, b Holder) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name.Name, b.Name.Name))
}

// Queues holds the queue of each environment, and counts what each requester keeps pending. It is safe for concurrent use.
type Queues struct {
	wake func(types.NamespacedName)

	mu           sync.Mutex
	environments map[types.NamespacedName]*environment
	// in finds the environment of each call that runs or waits.
	in      map[types.NamespacedName]*environment
	pending pending
}

// New returns queues without calls. They call wake, without a lock held, for each waiting call that they admit, or that waits no more.
func New(bounds PendingOptions, wake func(types.NamespacedName)) *Queues {
	return &Queues{
		wake:         wake,
		environments: map[types.NamespacedName]*environment{},
		in:           map[types.NamespacedName]*environment{},
		pending:      pending{bounds, map[types.NamespacedName]Pending{}, map[string]usage{}},
	}
}

// change does something to the queues, and then wakes the calls that it names.
func (q *Queues) change(do func() (woken []types.NamespacedName)) {
	q.mu.Lock()
	woken := do()
	q.mu.Unlock()
	for _, call := range woken {
		q.wake(call)
	}
}

// Admit reports whether the call may run now. A call that may not waits, and is woken when it is admitted. Asking
// again changes nothing: an admitted call stays admitted and a waiting call keeps its position. limit is how many
// calls of the environment may run at once, 0 for any number.
func (q *Queues) Admit(name types.NamespacedName, limit int, entry Holder) (ok bool) {
	q.change(func() (admitted []types.NamespacedName) {
		e := q.environment(name)
		e.limit = limit
		if !q.holds(e, entry) {
			admitted = q.enter(e, entry, func() { e.enqueue(entry, e.tick+1) })
		}
		admitted = append(admitted, e.admitWaiting()...)
		_, ok = e.running[entry.Name]
		return slices.DeleteFunc(admitted, func(call types.NamespacedName) bool { return call == entry.Name })
	})
	return ok
}

// SetRunning says that a call runs already, whatever the limit is.
func (q *Queues) SetRunning(name types.NamespacedName, entry Holder) {
	q.change(func() []types.NamespacedName {
		e := q.environment(name)
		if q.in[entry.Name] == e && e.running[entry.Name].UID == entry.UID {
			return nil
		}
		return q.enter(e, entry, func() { e.setRunning(entry) })
	})
}

// SetWaiting says that an earlier process told a call to wait. It gets its place in the order, and nothing is admitted before
// the limit is known.
func (q *Queues) SetWaiting(name types.NamespacedName, entry Holder) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.in[entry.Name] == nil {
		e := q.environment(name)
		e.enqueue(entry, e.tick+1)
		q.in[entry.Name] = e
	}
}

// Release says that a call has ended, or was deleted. The next call takes its slot.
func (q *Queues) Release(call types.NamespacedName) {
	q.change(func() (admitted []types.NamespacedName) {
		if e := q.in[call]; e != nil {
			q.remove(call)
			admitted = e.admitWaiting()
		}
		return admitted
	})
}

// SetLimit changes how many calls of an environment may run at once, 0 for any number. It stops no running call.
func (q *Queues) SetLimit(name types.NamespacedName, limit int) {
	q.change(func() []types.NamespacedName {
		e := q.environments[name]
		if e == nil {
			return nil
		}
		e.limit = limit
		return e.admitWaiting()
	})
}

// RemoveEnvironment says that an environment was deleted. Who waits there waits no more, and is woken to find that out. It asks again where
// another environment has the name by then, and is admitted as everybody else.
func (q *Queues) RemoveEnvironment(name types.NamespacedName) {
	q.change(func() (waiting []types.NamespacedName) {
		e := q.environments[name]
		if e == nil {
			return nil
		}
		for _, entry := range slices.SortedFunc(maps.Values(e.waiting), compareCreation) {
			q.remove(entry.Name)
			waiting = append(waiting, entry.Name)
		}
		return waiting
	})
}

// IsWaiting reports whether the call waits to be admitted. While the limit isn't known it has to ask.
func (q *Queues) IsWaiting(call types.NamespacedName, uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.in[call]
	return e != nil && e.limit != unknownLimit && e.waiting[call].UID == uid
}

// Waiting returns how many calls wait, by environment.
func (q *Queues) Waiting() map[types.NamespacedName]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := map[types.NamespacedName]int{}
	for name, e := range q.environments {
		if n := len(e.waiting); n > 0 {
			waiting[name] = n
		}
	}
	return waiting
}

// holds reports whether the call runs or waits in the environment already. It needs the lock.
func (q *Queues) holds(e *environment, entry Holder) bool {
	return q.in[entry.Name] == e && (e.running[entry.Name].UID == entry.UID || e.waiting[entry.Name].UID == entry.UID)
}

// enter takes a call from where it was into an environment, and admits those who waited for it there. It needs the lock.
func (q *Queues) enter(e *environment, entry Holder, enter func()) (admitted []types.NamespacedName) {
	old := q.in[entry.Name]
	q.remove(entry.Name)
	enter()
	q.in[entry.Name], q.environments[e.name] = e, e
	if old != nil {
		admitted = old.admitWaiting()
	}
	return admitted
}

// remove forgets a call, and with its last one an environment. It needs the lock.
func (q *Queues) remove(call types.NamespacedName) {
	e := q.in[call]
	if e == nil {
		return
	}
	delete(q.in, call)
	if e.remove(call); len(e.running)+len(e.waiting) == 0 {
		delete(q.environments, e.name)
	}
}

// environment needs the lock.
func (q *Queues) environment(name types.NamespacedName) *environment {
	e := q.environments[name]
	if e == nil {
		e = newEnvironment(name)
		q.environments[name] = e
	}
	return e
}
