package queue

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// environment is the queue of one environment. Its methods need the lock of Queues.
type environment struct {
	name types.NamespacedName
	// limit is how many calls may run at once, 0 for any number, unknownLimit for none yet.
	limit      int
	running    map[types.NamespacedName]Holder
	waiting    map[types.NamespacedName]Holder
	requesters map[string]*requester
	// tick is a logical clock, which no step of a wall clock disturbs. Each admission has an even tick of its own; the
	// odd tick after it is the time until the next one.
	tick uint64
}

// requester is one that has running or waiting calls.
type requester struct {
	running int
	// line holds the waiting calls, in order.
	line []position
	// lastAdmitted is the tick of the requester's last admission.
	lastAdmitted uint64
}

// position is a waiting call in its requester's line.
type position struct {
	Holder
	// since is the tick in which it began to wait. It never decreases along a line.
	since uint64
}

// unknownLimit is that of an environment for which nobody has asked yet.
const unknownLimit = -1

func newEnvironment(name types.NamespacedName) *environment {
	return &environment{
		name:       name,
		limit:      unknownLimit,
		running:    map[types.NamespacedName]Holder{},
		waiting:    map[types.NamespacedName]Holder{},
		requesters: map[string]*requester{},
	}
}

func (e *environment) requester(name string) *requester {
	r := e.requesters[name]
	if r == nil {
		r = &requester{}
		e.requesters[name] = r
	}
	return r
}

func (e *environment) setRunning(entry Holder) {
	e.running[entry.Name] = entry
	e.requester(entry.User).running++
}

func (e *environment) enqueue(entry Holder, since uint64) {
	e.waiting[entry.Name] = entry
	e.requester(entry.User).enqueue(entry, since)
}

func (r *requester) enqueue(entry Holder, since uint64) {
	i := r.index(entry)
	if i < len(r.line) {
		// A call that was created before others but asks after them doesn't cost its requester the time they waited.
		since = min(since, r.line[i].since)
	}
	r.line = slices.Insert(r.line, i, position{entry, since})
}

// index is where an entry belongs in the line.
func (r *requester) index(entry Holder) int {
	i, _ := slices.BinarySearchFunc(r.line, entry, func(p position, entry Holder) int { return compareCreation(p.Holder, entry) })
	return i
}

func (e *environment) remove(call types.NamespacedName) {
	if entry, ok := e.running[call]; ok {
		delete(e.running, call)
		e.requester(entry.User).running--
		e.forgetIfIdle(entry.User)
	}
	if entry, ok := e.waiting[call]; ok {
		delete(e.waiting, call)
		r := e.requester(entry.User)
		i := r.index(entry)
		r.line = slices.Delete(r.line, i, i+1)
		e.forgetIfIdle(entry.User)
	}
}

// forgetIfIdle drops a requester without calls. Its next call begins to wait after its last admission, so nothing
// that decides the order is lost.
func (e *environment) forgetIfIdle(name string) {
	if r := e.requesters[name]; r != nil && r.running == 0 && len(r.line) == 0 {
		delete(e.requesters, name)
	}
}

// admitWaiting admits calls while slots are free, and returns them.
func (e *environment) admitWaiting() []types.NamespacedName {
	var admitted []types.NamespacedName
	for e.limit == 0 || len(e.running) < e.limit {
		r := e.next()
		if r == nil {
			break
		}
		call := r.line[0].Name
		entry := e.waiting[call]
		e.tick += 2
		r.lastAdmitted = e.tick
		r.line = slices.Delete(r.line, 0, 1)
		delete(e.waiting, call)
		e.setRunning(entry)
		admitted = append(admitted, call)
	}
	return admitted
}

// next is the requester whose call is admitted next, nil when no call may be.
func (e *environment) next() *requester {
	var best *requester
	for _, r := range e.requesters {
		if len(r.line) > 0 && (best == nil || goesBefore(r, best)) {
			best = r
		}
	}
	return best
}

// goesBefore compares requesters with waiting calls. The last comparisons only make the order a total one.
func goesBefore(a, b *requester) bool {
	return cmp.Or(
		cmp.Compare(a.running, b.running),
		cmp.Compare(a.waitsSince(), b.waitsSince()),
		compareCreation(a.line[0].Holder, b.line[0].Holder),
	) < 0
}

// waitsSince is the tick in which the requester was last served, or began to wait after that.
func (r *requester) waitsSince() uint64 { return max(r.lastAdmitted, r.line[0].since) }
