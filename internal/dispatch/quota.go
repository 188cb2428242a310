package dispatch

import (
	"errors"
	"net/netip"

	"toolcall.dev/operator/internal/fair"
)

// Bounds of the connections of runners that are known, which take about 28 KiB of memory each. A pod needs one; many pods
// can come from one address when their traffic is translated.
const (
	maxRunners             = 8192
	maxRunnersPerSource    = maxRunners / 4
	maxRunnersPerNamespace = maxRunners / 2
)

var errTooMany = errors.New("too many runners are connected from this address, for this namespace or in all")

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
	held, full := q.Hold(fair.Holder{Evict: evict}, fair.Place[string]{Whole: source.String(), Keys: keys}, fair.Place[string]{Keys: keys})
	if full != nil {
		return nil, errTooMany
	}
	return held.Release, nil
}
