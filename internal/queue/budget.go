package queue

import (
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

// Pending is a call that has not started, with the size of its input.
type Pending struct {
	Holder
	Bytes int64
}

// Budget bounds the pending calls of each requester, so that nobody can fill the operator's memory. It keeps its state
// in memory, and is safe for concurrent use.
type Budget struct {
	options BudgetOptions

	mu         sync.Mutex
	calls      map[types.NamespacedName]Pending
	requesters map[string]usage
}

type usage struct {
	calls int
	bytes int64
}

// NewBudget returns a budget without calls.
func NewBudget(options BudgetOptions) *Budget {
	return &Budget{options: options, calls: map[types.NamespacedName]Pending{}, requesters: map[string]usage{}}
}

// Reserve counts a call as pending, or says to the requester why it may not be; the message is empty for a call that is
// counted. A call that is counted already stays counted, whatever the bounds are.
func (b *Budget) Reserve(p Pending) (message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.calls[p.Name]; ok {
		if known.UID == p.UID {
			return ""
		}
		b.remove(p.Name)
	}
	if message := b.excess(p); message != "" {
		return message
	}
	b.add(p)
	return ""
}

// excess says which bound the call would exceed; empty for none. It needs the lock.
func (b *Budget) excess(p Pending) string {
	used := b.requesters[p.User]
	if limit := b.options.MaxCalls; limit > 0 && used.calls >= limit {
		return fmt.Sprintf("%d calls of this requester are pending, and %d is the limit: wait until some have started, or cancel some",
			used.calls, limit)
	}
	switch limit := b.options.MaxBytes; {
	case limit == 0 || p.Bytes <= limit-used.bytes:
		return ""
	case p.Bytes > limit:
		return fmt.Sprintf("the call has %d bytes of input, and %d is the limit for all pending calls of a requester: make the input smaller",
			p.Bytes, limit)
	default:
		return fmt.Sprintf("the pending calls of this requester hold %d bytes of input and this call has %d, and %d is the limit: wait until some have started, or cancel some",
			used.bytes, p.Bytes, limit)
	}
}

// Release says that a call has started, has ended or was deleted.
func (b *Budget) Release(call types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(call)
}

// SetPending counts a call that an earlier process let in, whatever the bounds are.
func (b *Budget) SetPending(p Pending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.calls[p.Name]; !known {
		b.add(p)
	}
}

// add needs the lock.
func (b *Budget) add(p Pending) {
	b.calls[p.Name] = p
	b.change(p.User, usage{1, p.Bytes})
}

// remove needs the lock.
func (b *Budget) remove(call types.NamespacedName) {
	if p, ok := b.calls[call]; ok {
		delete(b.calls, call)
		b.change(p.User, usage{-1, -p.Bytes})
	}
}

func (b *Budget) change(requester string, by usage) {
	u := b.requesters[requester]
	if u = (usage{u.calls + by.calls, u.bytes + by.bytes}); u.calls > 0 {
		b.requesters[requester] = u
	} else {
		delete(b.requesters, requester)
	}
}
