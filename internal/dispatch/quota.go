package dispatch

import (
	"errors"
	"net/netip"
	"sync"
)

// Bounds of the connections of runners that are known. A pod needs one; many pods can come from one address when their
// traffic is translated.
const (
	maxRunners             = 20000
	maxRunnersPerSource    = maxRunners / 4
	maxRunnersPerNamespace = maxRunners / 2
)

var errTooMany = errors.New("too many runners are connected from this address, for this namespace or in all")

// quota counts the connections of known runners.
type quota struct {
	mu         sync.Mutex
	total      int
	sources    map[netip.Addr]int
	namespaces map[string]int
}

func newQuota() *quota {
	return &quota{sources: map[netip.Addr]int{}, namespaces: map[string]int{}}
}

// take counts one connection until release is called.
func (q *quota) take(source netip.Addr, namespace string) (release func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.total >= maxRunners || q.sources[source] >= maxRunnersPerSource || q.namespaces[namespace] >= maxRunnersPerNamespace {
		return nil, errTooMany
	}
	q.total++
	q.sources[source]++
	q.namespaces[namespace]++
	return sync.OnceFunc(func() { q.release(source, namespace) }), nil
}

func (q *quota) release(source netip.Addr, namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total--
	decrement(q.sources, source)
	decrement(q.namespaces, namespace)
}

func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
