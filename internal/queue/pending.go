package queue

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// PendingOptions bound what one requester keeps pending, over all namespaces. 0 is no bound.
type PendingOptions struct {
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

// pending counts the calls that have not started, so that no requester can fill the operator's memory with them. It needs the lock of
// Queues.
type pending struct {
	options    PendingOptions
	calls      map[types.NamespacedName]Pending
	requesters map[string]usage
}

type usage struct {
	calls int
	bytes int64
}

// Reserve counts a call as pending, or says to the requester why it may not be; the message is empty for a call that is
// counted. A call that is counted already stays counted, whatever the bounds are.
func (q *Queues) Reserve(p Pending) (message string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if known, ok := q.pending.calls[p.Name]; ok {
		if known.UID == p.UID {
			return ""
		}
		q.pending.remove(p.Name)
	}
	if message := q.pending.excess(p); message != "" {
		return message
	}
	q.pending.add(p)
	return ""
}

// SetPending counts a call that an earlier process let in, whatever the bounds are.
func (q *Queues) SetPending(p Pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.pending.calls[p.Name]; !known {
		q.pending.add(p)
	}
}

// SetStarted says that a call isn't pending: it has started, has ended or was deleted.
func (q *Queues) SetStarted(call types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending.remove(call)
}

// excess says which bound the call would exceed; empty for none.
func (b *pending) excess(p Pending) string {
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

func (b *pending) add(p Pending) {
	b.calls[p.Name] = p
	b.change(p.User, usage{1, p.Bytes})
}

func (b *pending) remove(call types.NamespacedName) {
	if p, ok := b.calls[call]; ok {
		delete(b.calls, call)
		b.change(p.User, usage{-1, -p.Bytes})
	}
}

func (b *pending) change(requester string, by usage) {
	u := b.requesters[requester]
	if u = (usage{u.calls + by.calls, u.bytes + by.bytes}); u.calls > 0 {
		b.requesters[requester] = u
	} else {
		delete(b.requesters, requester)
	}
}
