package dispatch

import (
	"context"
	"errors"
	"net/netip"

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

// Bounds of the connections of runners that are known, which take about 28 KiB of memory each. A pod needs one; many pods
// can come from one address when their traffic is translated.
const (
	maxRunners             = 8192
	maxRunnersPerSource    = maxRunners / 4
	maxRunnersPerNamespace = maxRunners / 2
)

var errTooMany = errors.New("too many runners are connected from this address, for this namespace or in total")

// quota counts the connections of known runners. When there are too many, in all or from one address, the namespace that
// has most of them gives way to one that has fewer: nobody keeps another namespace out.
type quota struct{ *fair.Budget[string] }

func newQuota(most, perSource, perNamespace int) quota {
	return quota{fair.NewBudget[string](
		fair.Limits{Total: perSource, Each: []int{perSource}}, fair.Limits{Total: most, Each: []int{perNamespace}},
	)}
}

// take counts one connection until release is called. evict must close the connection without blocking.
func (q quota) take(source netip.Addr, namespace string, evict func()) (release func(), err error) {
	keys := []string{namespace}
	held, full := q.Hold(evict, fair.Place[string]{Whole: source.String(), Keys: keys}, fair.Place[string]{Keys: keys})
	if full != nil {
		return nil, errTooMany
	}
	return held.Release, nil
}
