package dispatch

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Bounds of the results that were received, or are being received, and that nobody has recorded yet.
const (
	maxResultBytes = 64 << 20
	// smallResult is the size up to which a result takes its room from a part of its own.
	smallResult         = 64 << 10
	maxSmallResultBytes = maxResultBytes / 4
	maxLargeResultBytes = maxResultBytes - maxSmallResultBytes
	// namespaceShare is the part of each that the results of one namespace can take.
	namespaceShare = 8
)

// maxDecisionBytes bounds the decisions of sessions' calls that are kept beside that.
const maxDecisionBytes = 32 << 20

// resultBudgets are the memory for results. Small ones, which most are, never wait for large ones. Nobody waits for the
// memory for decisions.
type resultBudgets struct{ small, large, decisions *resultBudget }

func newResultBudgets() resultBudgets {
	return resultBudgets{
		small:     newResultBudget(maxSmallResultBytes, maxSmallResultBytes/namespaceShare),
		large:     newResultBudget(maxLargeResultBytes, maxLargeResultBytes/namespaceShare),
		decisions: newResultBudget(maxDecisionBytes, maxDecisionBytes/namespaceShare),
	}
}

// acquire waits for a share of the budget. Calling release more than once is fine.
func (b resultBudgets) acquire(ctx context.Context, namespace string, n int) (release func(), err error) {
	if n <= smallResult {
		return b.small.acquire(ctx, namespace, int64(n))
	}
	return b.large.acquire(ctx, namespace, int64(n))
}

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

// keepDecision returns a decision and takes its share of the budget; it returns none when there is no room.
func (b resultBudgets) keepDecision(namespace, decision string) (kept string, release func()) {
	release = b.decisions.tryAcquire(namespace, int64(len(decision)))
	if release == nil {
		return "", nil
	}
	return decision, release
}

// tryAcquire is acquire without waiting. It returns nil when there is no room.
func (b *resultBudget) tryAcquire(namespace string, n int64) (release func()) {
	own := b.enter(namespace)
	if !own.bytes.TryAcquire(n) {
		b.leave(namespace)
		return nil
	}
	if !b.total.TryAcquire(n) {
		own.bytes.Release(n)
		b.leave(namespace)
		return nil
	}
	return b.releaser(own, namespace, n)
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
	return b.releaser(own, namespace, n), nil
}

func (b *resultBudget) releaser(own *namespaceBudget, namespace string, n int64) func() {
	return sync.OnceFunc(func() {
		b.total.Release(n)
		own.bytes.Release(n)
		b.leave(namespace)
	})
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
