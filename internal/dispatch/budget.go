package dispatch

import (
	"context"

	"toolcall.dev/operator/internal/fair"
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

// resultBudgets are the memory for results, in bytes by namespace. Small ones, which most are, never wait for large ones. Nobody
// waits for the memory for decisions.
type resultBudgets struct {
	small, large *fair.Turns[string]
	decisions    *fair.Counter[string]
}

func newResultBudgets() resultBudgets {
	return resultBudgets{
		small:     fair.NewTurns[string](maxSmallResultBytes, maxSmallResultBytes/namespaceShare),
		large:     fair.NewTurns[string](maxLargeResultBytes, maxLargeResultBytes/namespaceShare),
		decisions: fair.NewCounter[string](maxDecisionBytes, maxDecisionBytes/namespaceShare),
	}
}

// acquire waits for a share of the budget. Calling release more than once is fine.
func (b resultBudgets) acquire(ctx context.Context, namespace string, n int) (release func(), err error) {
	if n <= smallResult {
		return b.small.Acquire(ctx, namespace, int64(n))
	}
	return b.large.Acquire(ctx, namespace, int64(n))
}

// keepDecision returns a decision and takes its share of the budget; it returns none when there is no room.
func (b resultBudgets) keepDecision(namespace, decision string) (kept string, release func()) {
	share, ok := b.decisions.Acquire(int64(len(decision)), namespace)
	if !ok {
		return "", nil
	}
	return decision, share.Release
}
