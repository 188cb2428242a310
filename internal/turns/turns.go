// Package turns lets the calls of a place run a bounded number at once, in a fair order.
//
// Of what waits, the caller goes next who runs the least, then the one who was served the longest ago, and each
// caller's calls go in the order in which they came: a flood makes its own sender wait, nobody else. A place
// without a limit lets everybody go and is only counted, so that a limit that is set later holds at once.
//
// It is memory only, of calls that have not ended: whoever starts again says by Learn which calls run already, and
// the ones that wait ask again. It starts nothing itself: those whose turn has come are told to a function.
package turns

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Ticket is one call that wants to run.
type Ticket struct {
	// Call is its namespace and name; UID tells it from an earlier one of that name.
	Call types.NamespacedName
	UID  types.UID
	// Caller is who shares the calls' turns.
	Caller string
	// Arrived orders the calls of one caller: lower is earlier, compared element by element.
	Arrived [2]int64
	// Seen is when the call was first looked at.
	Seen time.Time
}

// Turns says whose turn it is, place by place. Its methods may be called at the same time.
type Turns struct {
	wake func(types.NamespacedName)

	mu     sync.Mutex
	places map[types.NamespacedName]*place
	// where is the place of each call that runs or waits.
	where map[types.NamespacedName]*place
}

// New makes one without calls; wake is told of calls whose turn has come, without a lock held.
func New(wake func(types.NamespacedName)) *Turns {
	return &Turns{wake: wake, places: map[types.NamespacedName]*place{}, where: map[types.NamespacedName]*place{}}
}

// place is one environment.
type place struct {
	name types.NamespacedName
	// gone says that the place isn't there any more; it is forgotten with its last call.
	gone bool
	// learned says that what ran here before is known.
	learned bool
	// limit is how many may run at once, 0 for any number.
	limit   int
	running map[types.NamespacedName]Ticket
	waiting map[types.NamespacedName]Ticket
	callers map[string]*caller
	// served counts the turns that were given.
	served uint64
}

// caller is one of whom something runs, waits or is expected.
type caller struct {
	running int
	// line is what waits, in order.
	line []Ticket
	// expected is what may come to wait, and in front of some of the line.
	expected map[types.NamespacedName]Ticket
	// last is when one of them was served or came first, in turns of the place.
	last uint64
}

// Learn has the calls said, once a place, that run there already; until it succeeds the place isn't asked.
func (t *Turns) Learn(name types.NamespacedName, running func() ([]Ticket, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.place(name)
	if p.learned {
		return nil
	}
	tickets, err := running()
	if err != nil {
		return err
	}
	for _, ticket := range tickets {
		t.hold(p, ticket)
	}
	p.learned = true
	return nil
}

// Hold says that a call runs already, whatever the limit is.
func (t *Turns) Hold(name types.NamespacedName, ticket Ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold(t.place(name), ticket)
}

// hold needs the lock.
func (t *Turns) hold(p *place, ticket Ticket) {
	if t.where[ticket.Call] == p && p.running[ticket.Call].UID == ticket.UID {
		return
	}
	t.forget(ticket.Call)
	p.run(ticket)
	t.where[ticket.Call] = p
}

// Expect says that a call will ask for a turn once it is known that it may run: none of its caller's calls that came
// after it goes before that. Whoever says it calls done when it is decided, also where the call doesn't enter.
func (t *Turns) Expect(name types.NamespacedName, ticket Ticket) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.place(name)
	if t.stands(p, ticket) {
		return func() {}
	}
	p.caller(ticket.Caller).expected[ticket.Call] = ticket
	return func() {
		t.mu.Lock()
		p.arrived(ticket)
		called := p.promote()
		t.mu.Unlock()
		t.wakeAll(called, types.NamespacedName{})
	}
}

// Enter asks for a turn and says whether the call may run now. One that may not waits, and is woken when it
// may; asking again keeps its turn, or its place in the line.
func (t *Turns) Enter(name types.NamespacedName, limit int, ticket Ticket) bool {
	t.mu.Lock()
	p := t.place(name)
	p.limit, p.gone = limit, false
	var called []types.NamespacedName
	if !t.stands(p, ticket) {
		if old := t.where[ticket.Call]; old != nil {
			t.forget(ticket.Call)
			called = old.promote()
		}
		p.queue(ticket)
		p.arrived(ticket)
		t.where[ticket.Call] = p
	}
	called = append(called, p.promote()...)
	_, may := p.running[ticket.Call]
	t.mu.Unlock()
	t.wakeAll(called, ticket.Call)
	return may
}

// stands says whether the call runs or waits in the place already.
func (t *Turns) stands(p *place, ticket Ticket) bool {
	return t.where[ticket.Call] == p && (p.running[ticket.Call].UID == ticket.UID || p.waiting[ticket.Call].UID == ticket.UID)
}

// Waits says whether the call stands in a line.
func (t *Turns) Waits(call types.NamespacedName, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.where[call]
	return p != nil && p.waiting[call].UID == uid
}

// Seen is when a call that waits or runs was first looked at.
func (t *Turns) Seen(call types.NamespacedName, uid types.UID) (seen time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.where[call]
	if p == nil {
		return time.Time{}, false
	}
	for _, ticket := range []Ticket{p.running[call], p.waiting[call]} {
		if ticket.UID == uid {
			return ticket.Seen, !ticket.Seen.IsZero()
		}
	}
	return time.Time{}, false
}

// Leave says that a call has ended or is gone. Its turn goes to the next.
func (t *Turns) Leave(call types.NamespacedName) {
	t.mu.Lock()
	p := t.where[call]
	if p == nil {
		t.mu.Unlock()
		return
	}
	t.forget(call)
	called := p.promote()
	t.sweep(p)
	t.mu.Unlock()
	t.wakeAll(called, types.NamespacedName{})
}

// Limit changes how many calls of a place may run at once, 0 for any number. Nothing that runs is stopped.
func (t *Turns) Limit(name types.NamespacedName, limit int) {
	t.mu.Lock()
	p := t.places[name]
	if p == nil {
		t.mu.Unlock()
		return
	}
	p.limit = limit
	called := p.promote()
	t.mu.Unlock()
	t.wakeAll(called, types.NamespacedName{})
}

// Gone says that a place isn't there any more. Who waits there is woken, to find that out.
func (t *Turns) Gone(name types.NamespacedName) {
	t.mu.Lock()
	p := t.places[name]
	if p == nil {
		t.mu.Unlock()
		return
	}
	p.limit, p.gone = 0, true
	called := p.promote()
	t.sweep(p)
	t.mu.Unlock()
	t.wakeAll(called, types.NamespacedName{})
}

// sweep needs the lock.
func (t *Turns) sweep(p *place) {
	if p.gone && len(p.running)+len(p.waiting) == 0 {
		delete(t.places, p.name)
	}
}

// Len is how many calls run and how many wait, everywhere.
func (t *Turns) Len() (running, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.places {
		running += len(p.running)
		waiting += len(p.waiting)
	}
	return running, waiting
}

func (t *Turns) wakeAll(calls []types.NamespacedName, but types.NamespacedName) {
	for _, call := range calls {
		if call != but {
			t.wake(call)
		}
	}
}

// place needs the lock.
func (t *Turns) place(name types.NamespacedName) *place {
	p := t.places[name]
	if p == nil {
		p = &place{name: name, running: map[types.NamespacedName]Ticket{}, waiting: map[types.NamespacedName]Ticket{}, callers: map[string]*caller{}}
		t.places[name] = p
	}
	return p
}

// forget needs the lock.
func (t *Turns) forget(call types.NamespacedName) {
	if p := t.where[call]; p != nil {
		delete(t.where, call)
		p.remove(call)
	}
}

func (p *place) caller(name string) *caller {
	c := p.callers[name]
	if c == nil {
		// Somebody new comes after those who wait already.
		c = &caller{last: p.served, expected: map[types.NamespacedName]Ticket{}}
		p.callers[name] = c
	}
	return c
}

func (p *place) run(ticket Ticket) {
	p.running[ticket.Call] = ticket
	p.caller(ticket.Caller).running++
}

func (p *place) queue(ticket Ticket) {
	p.waiting[ticket.Call] = ticket
	c := p.caller(ticket.Caller)
	c.line = slices.Insert(c.line, c.position(ticket), ticket)
}

// arrived says that a call isn't to be waited for any more.
func (p *place) arrived(ticket Ticket) {
	if c := p.callers[ticket.Caller]; c != nil {
		delete(c.expected, ticket.Call)
		p.tidy(ticket.Caller)
	}
}

// ready says that somebody waits whom nobody is expected before.
func (c *caller) ready() bool {
	if len(c.line) == 0 {
		return false
	}
	for _, ticket := range c.expected {
		if slices.Compare(ticket.Arrived[:], c.line[0].Arrived[:]) < 0 {
			return false
		}
	}
	return true
}

// position is where a ticket belongs in the line.
func (c *caller) position(ticket Ticket) int {
	i, _ := slices.BinarySearchFunc(c.line, ticket, func(a, b Ticket) int { return slices.Compare(a.Arrived[:], b.Arrived[:]) })
	return i
}

func (p *place) remove(call types.NamespacedName) {
	if ticket, ok := p.running[call]; ok {
		delete(p.running, call)
		p.caller(ticket.Caller).running--
		p.tidy(ticket.Caller)
	}
	if ticket, ok := p.waiting[call]; ok {
		delete(p.waiting, call)
		c := p.caller(ticket.Caller)
		i := c.position(ticket)
		for c.line[i].Call != call {
			i++
		}
		c.line = slices.Delete(c.line, i, i+1)
		p.tidy(ticket.Caller)
	}
}

// tidy forgets a caller of whom nothing waits or runs any more, and nothing is expected.
func (p *place) tidy(name string) {
	if c := p.callers[name]; c != nil && c.running == 0 && len(c.line) == 0 && len(c.expected) == 0 {
		delete(p.callers, name)
	}
}

// promote gives turns while there are any, and returns whom.
func (p *place) promote() []types.NamespacedName {
	var called []types.NamespacedName
	for p.limit == 0 || len(p.running) < p.limit {
		c := p.next()
		if c == nil {
			break
		}
		ticket := c.line[0]
		p.served++
		c.last = p.served
		p.run(ticket)
		c.line = slices.Delete(c.line, 0, 1)
		delete(p.waiting, ticket.Call)
		called = append(called, ticket.Call)
	}
	return called
}

// next is the caller whose turn it is, nil where nobody can go. Without a limit the order doesn't matter.
func (p *place) next() *caller {
	var best *caller
	for _, c := range p.callers {
		may := c.ready() || (p.limit == 0 && len(c.line) > 0)
		if may && (best == nil || before(c, best)) {
			best = c
		}
	}
	return best
}

// before compares callers that wait. Two tickets of one arrival are of one caller, or it doesn't matter.
func before(a, b *caller) bool {
	return cmp.Or(
		cmp.Compare(a.running, b.running),
		cmp.Compare(a.last, b.last),
		slices.Compare(a.line[0].Arrived[:], b.line[0].Arrived[:]),
		cmp.Compare(a.line[0].Call.String(), b.line[0].Call.String()),
	) < 0
}
