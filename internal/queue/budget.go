package queue

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// BudgetOptions bound what one requester keeps pending, over all namespaces. 0 is no bound.
type BudgetOptions struct {
	// MaxCalls bounds the number of pending calls.
	MaxCalls int
	// MaxBytes bounds the input of the pending calls together: scripts, sources, arguments, variables, stdin.
	MaxBytes int64
}

// Pending is a call that has not started.
type Pending struct {
	// Call is the call's namespace and name. UID tells it from an earlier call of that name.
	Call types.NamespacedName
	UID  types.UID
	// Requester is who created the call. Calls without a known requester share the empty one.
	Requester string
	// Bytes is the size of the call's input.
	Bytes int64
}

// Bound names one of the bounds of a budget.
type Bound string

// Bounds of a budget.
const (
	BoundCalls Bound = "Calls"
	BoundBytes Bound = "Bytes"
)

// Excess says why a call isn't let into a budget.
type Excess struct {
	// Bound is the one that the call would exceed.
	Bound Bound
	// Limit is its value, Used how much the requester's other pending calls take of it, Wanted how much this call would
	// take.
	Limit, Used, Wanted int64
}

// String is the message for the requester.
func (x Excess) String() string {
	switch {
	case x.Bound == BoundCalls:
		return fmt.Sprintf("%d calls of this requester are pending, and %d is the limit: wait until some have started, or cancel some",
			x.Used, x.Limit)
	case x.Wanted > x.Limit:
		return fmt.Sprintf("the call has %d bytes of input, and %d is the limit for all pending calls of a requester: make the input smaller",
			x.Wanted, x.Limit)
	default:
		return fmt.Sprintf("the pending calls of this requester hold %d bytes of input and this call has %d, and %d is the limit: wait until some have started, or cancel some",
			x.Used, x.Wanted, x.Limit)
	}
}

// Budget bounds the pending calls of each requester, so that nobody can fill the operator's memory. It keeps its state
// in memory; Seed rebuilds it from the API. It is safe for concurrent use, and holds no lock while it reads.
type Budget struct {
	options BudgetOptions

	mu         sync.Mutex
	seeded     bool
	seeding    *seeding
	calls      map[types.NamespacedName]Pending
	requesters map[string]usage
	total      usage
}

type usage struct {
	calls int
	bytes int64
}

// NewBudget returns a budget without calls.
func NewBudget(options BudgetOptions) *Budget {
	return &Budget{options: options, calls: map[types.NamespacedName]Pending{}, requesters: map[string]usage{}}
}

// Reserve counts a call as pending, or returns why it may not be. A call that is counted already stays counted,
// whatever the bounds are. Seed has to succeed before.
func (b *Budget) Reserve(p Pending) *Excess {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.calls[p.Call]; ok {
		if known.UID == p.UID {
			return nil
		}
		b.remove(p.Call)
	}
	if excess := b.excess(p); excess != nil {
		return excess
	}
	b.add(p)
	return nil
}

// excess needs the lock.
func (b *Budget) excess(p Pending) *Excess {
	used := b.requesters[p.Requester]
	if limit := b.options.MaxCalls; limit > 0 && used.calls >= limit {
		return &Excess{Bound: BoundCalls, Limit: int64(limit), Used: int64(used.calls), Wanted: 1}
	}
	if limit := b.options.MaxBytes; limit > 0 && p.Bytes > limit-used.bytes {
		return &Excess{Bound: BoundBytes, Limit: limit, Used: used.bytes, Wanted: p.Bytes}
	}
	return nil
}

// Release says that a call has started, has ended or was deleted.
func (b *Budget) Release(call types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seeding != nil {
		b.seeding.released[call] = struct{}{}
	}
	b.remove(call)
}

// Total returns how many calls are counted as pending, and how many bytes of input they have.
func (b *Budget) Total() (calls int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total.calls, b.total.bytes
}

// Seed counts the pending calls that an earlier process let in, once; afterwards it returns at once. They count
// whatever the bounds are. What Queues.Seed says about reads, errors and calls that are released meanwhile holds here.
func (b *Budget) Seed(ctx context.Context, read func(context.Context) ([]Pending, error)) error {
	b.mu.Lock()
	if b.seeded {
		b.mu.Unlock()
		return nil
	}
	s, shared := b.seeding, b.seeding != nil
	if !shared {
		s = newSeeding()
		b.seeding = s
	}
	b.mu.Unlock()
	if shared {
		return s.wait(ctx)
	}
	return runSeeding(ctx, s, read, func(pending []Pending) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seeding = nil
		if s.err == nil {
			b.apply(pending, s.released)
		}
	})
}

// apply needs the lock.
func (b *Budget) apply(pending []Pending, released map[types.NamespacedName]struct{}) {
	for _, p := range pending {
		_, ended := released[p.Call]
		_, known := b.calls[p.Call]
		if !ended && !known {
			b.add(p)
		}
	}
	b.seeded = true
}

// add needs the lock.
func (b *Budget) add(p Pending) {
	b.calls[p.Call] = p
	b.change(p.Requester, usage{1, p.Bytes})
}

// remove needs the lock.
func (b *Budget) remove(call types.NamespacedName) {
	if p, ok := b.calls[call]; ok {
		delete(b.calls, call)
		b.change(p.Requester, usage{-1, -p.Bytes})
	}
}

func (b *Budget) change(requester string, by usage) {
	b.total = b.total.plus(by)
	if u := b.requesters[requester].plus(by); u.calls > 0 {
		b.requesters[requester] = u
	} else {
		delete(b.requesters, requester)
	}
}

func (u usage) plus(by usage) usage { return usage{u.calls + by.calls, u.bytes + by.bytes} }
