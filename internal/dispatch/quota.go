package dispatch

import (
	"container/list"
	"errors"
	"net/netip"
	"sync"
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
type quota struct {
	max, perSource, perNamespace int

	mu      sync.Mutex
	all     *holders
	sources map[netip.Addr]*holders
}

// holders are connections by namespace, of each the newest last.
type holders struct {
	count      int
	namespaces map[string]*list.List
}

// holding is one connection.
type holding struct {
	source    netip.Addr
	namespace string
	evict     func()
	// inAll and inSource are its places; nil once it is dropped.
	inAll, inSource *list.Element
}

func newQuota(most, perSource, perNamespace int) *quota {
	return &quota{max: most, perSource: perSource, perNamespace: perNamespace, all: newHolders(), sources: map[netip.Addr]*holders{}}
}

func newHolders() *holders { return &holders{namespaces: map[string]*list.List{}} }

// take counts one connection until release is called. evict must close the connection without blocking.
func (q *quota) take(source netip.Addr, namespace string, evict func()) (release func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := q.sources[source]
	switch {
	case q.all.of(namespace) >= q.perNamespace:
		return nil, errTooMany
	case from != nil && from.count >= q.perSource && !q.makeRoom(from, namespace):
		return nil, errTooMany
	case q.all.count >= q.max && !q.makeRoom(q.all, namespace):
		return nil, errTooMany
	}
	// Making room may have removed the address.
	if from = q.sources[source]; from == nil {
		from = newHolders()
		q.sources[source] = from
	}
	h := &holding{source: source, namespace: namespace, evict: evict}
	h.inAll, h.inSource = q.all.add(h), from.add(h)
	return func() { q.release(h) }, nil
}

func (q *quota) release(h *holding) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(h)
}

// The rest needs the lock.

// makeRoom closes the newest connection of the namespace that has most, unless the newcomer's would have as many then.
func (q *quota) makeRoom(among *holders, namespace string) bool {
	var most *list.List
	for _, own := range among.namespaces {
		if most == nil || own.Len() > most.Len() {
			most = own
		}
	}
	if most == nil || most.Len() <= among.of(namespace)+1 {
		return false
	}
	newest := most.Back().Value.(*holding)
	q.drop(newest)
	newest.evict()
	return true
}

func (q *quota) drop(h *holding) {
	if h.inAll == nil {
		return
	}
	from := q.sources[h.source]
	q.all.remove(h.namespace, h.inAll)
	from.remove(h.namespace, h.inSource)
	h.inAll, h.inSource = nil, nil
	if from.count == 0 {
		delete(q.sources, h.source)
	}
}

func (h *holders) of(namespace string) int {
	if own := h.namespaces[namespace]; own != nil {
		return own.Len()
	}
	return 0
}

func (h *holders) add(one *holding) *list.Element {
	own := h.namespaces[one.namespace]
	if own == nil {
		own = list.New()
		h.namespaces[one.namespace] = own
	}
	h.count++
	return own.PushBack(one)
}

func (h *holders) remove(namespace string, place *list.Element) {
	own := h.namespaces[namespace]
	own.Remove(place)
	h.count--
	if own.Len() == 0 {
		delete(h.namespaces, namespace)
	}
}
