package dispatch

import (
	"container/list"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch/wire"
)

const (
	// maxLeftBytes bounds the results that are kept without a connection: a runner that lives sends its results again, and
	// the copies are for one that doesn't.
	maxLeftBytes = 32 << 20
	// leftOverhead is what a result takes beside its encoding.
	leftOverhead = 1 << 10
)

// leftResults are the results of runners whose connection ended before anybody took them, by the hash of the runner's
// key and the call's UID. When there are too many, the oldest goes of the namespace whose results take most.
type leftResults struct {
	max        int
	bytes      int
	runners    map[string]map[string]*leftResult
	calls      map[types.NamespacedName]map[*leftResult]struct{}
	namespaces map[string]*leftOfNamespace
}

// leftOfNamespace are the results of one namespace, the oldest first.
type leftOfNamespace struct {
	bytes   int
	results list.List
}

// leftResult is what a runner reported, and the call that it was for.
type leftResult struct {
	keyHash string
	call    types.NamespacedName
	result  *wire.Result
	bytes   int
	place   *list.Element
}

func newLeftResults(most int) *leftResults {
	return &leftResults{
		max: most, runners: map[string]map[string]*leftResult{}, calls: map[types.NamespacedName]map[*leftResult]struct{}{},
		namespaces: map[string]*leftOfNamespace{},
	}
}

// get returns a result that is kept, or nil.
func (l *leftResults) get(keyHash, callUID string) *wire.Result {
	if one := l.runners[keyHash][callUID]; one != nil {
		return one.result
	}
	return nil
}

// keep holds on to a result.
func (l *leftResults) keep(keyHash string, held *heldResult) {
	call, r := held.call, held.result
	l.forget(keyHash, r.CallUID)
	one := &leftResult{keyHash: keyHash, call: call, result: r, bytes: held.size + leftOverhead}
	if l.runners[keyHash] == nil {
		l.runners[keyHash] = map[string]*leftResult{}
	}
	l.runners[keyHash][r.CallUID] = one
	if l.calls[call] == nil {
		l.calls[call] = map[*leftResult]struct{}{}
	}
	l.calls[call][one] = struct{}{}
	own := l.namespaces[call.Namespace]
	if own == nil {
		own = &leftOfNamespace{}
		l.namespaces[call.Namespace] = own
	}
	one.place = own.results.PushBack(one)
	own.bytes += one.bytes
	l.bytes += one.bytes
	for l.bytes > l.max {
		l.drop(l.mostly().results.Front().Value.(*leftResult))
	}
}

// mostly is the namespace whose results take most.
func (l *leftResults) mostly() *leftOfNamespace {
	var most *leftOfNamespace
	for _, own := range l.namespaces {
		if most == nil || own.bytes > most.bytes {
			most = own
		}
	}
	return most
}

// forget drops one result, if it is there.
func (l *leftResults) forget(keyHash, callUID string) {
	if one := l.runners[keyHash][callUID]; one != nil {
		l.drop(one)
	}
}

// forgetRunner drops the results of a runner, but for those of calls that it still has.
func (l *leftResults) forgetRunner(keyHash string, has func(callUID string) bool) {
	for uid, one := range l.runners[keyHash] {
		if !has(uid) {
			l.drop(one)
		}
	}
}

// hasOther says that there is a result of a call of a name with another UID.
func (l *leftResults) hasOther(call types.NamespacedName, uid string) bool {
	for one := range l.calls[call] {
		if one.result.CallUID != uid {
			return true
		}
	}
	return false
}

// forgetOthers drops the results of the calls of a name, but for the one with a UID.
func (l *leftResults) forgetOthers(call types.NamespacedName, uid string) {
	for one := range l.calls[call] {
		if one.result.CallUID != uid {
			l.drop(one)
		}
	}
}

func (l *leftResults) drop(one *leftResult) {
	if delete(l.runners[one.keyHash], one.result.CallUID); len(l.runners[one.keyHash]) == 0 {
		delete(l.runners, one.keyHash)
	}
	if delete(l.calls[one.call], one); len(l.calls[one.call]) == 0 {
		delete(l.calls, one.call)
	}
	own := l.namespaces[one.call.Namespace]
	own.results.Remove(one.place)
	if own.bytes -= one.bytes; own.results.Len() == 0 {
		delete(l.namespaces, one.call.Namespace)
	}
	l.bytes -= one.bytes
}
