package dispatch

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Bounds of the results that were received, or are being received, and that nobody has recorded yet.
const (
	maxResultBytes             = 64 << 20
	maxResultBytesPerNamespace = maxResultBytes / 4
)

// resultBudget bounds the memory that results take together. Who comes first is served first, and the results of one
// namespace can't take all.
type resultBudget struct {
	total        *semaphore.Weighted
	perNamespace int64

	mu         sync.Mutex
	namespaces map[string]*namespaceBudget
}

// namespaceBudget is there while somebody uses it.
type namespaceBudget struct {
	bytes *semaphore.Weighted
	users int
}

func newResultBudget(total, perNamespace int64) *resultBudget {
	return &resultBudget{total: semaphore.NewWeighted(total), perNamespace: perNamespace, namespaces: map[string]*namespaceBudget{}}
}

// acquire waits for a share of the budget. Calling release more than once is fine.
func (b *resultBudget) acquire(ctx context.Context, namespace string, n int64) (release func(), err error) {
	own := b.enter(namespace)
	if err := own.bytes.Acquire(ctx, n); err != nil {
		b.leave(namespace)
		return nil, err
	}
	if err := b.total.Acquire(ctx, n); err != nil {
		own.bytes.Release(n)
		b.leave(namespace)
		return nil, err
	}
	return sync.OnceFunc(func() {
		b.total.Release(n)
		own.bytes.Release(n)
		b.leave(namespace)
	}), nil
}

func (b *resultBudget) enter(namespace string) *namespaceBudget {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.namespaces[namespace]
	if own == nil {
		own = &namespaceBudget{bytes: semaphore.NewWeighted(b.perNamespace)}
		b.namespaces[namespace] = own
	}
	own.users++
	return own
}

func (b *resultBudget) leave(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.namespaces[namespace]
	if own.users--; own.users == 0 {
		delete(b.namespaces, namespace)
	}
}
