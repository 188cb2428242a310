package toolcall

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// lastCalls are the finished calls of each session that may stay, the oldest first. After a restart those that had ended
// before aren't among them: they stay for their time.
type lastCalls struct {
	mu       sync.Mutex
	sessions map[types.NamespacedName][]types.NamespacedName
	calls    map[types.NamespacedName]lastCall
}

// lastCall is a finished call of a session. isOver says that it is to go before its time, which is at due.
type lastCall struct {
	session types.NamespacedName
	uid     types.UID
	due     time.Time
	isOver  bool
}

func newLastCalls() *lastCalls {
	return &lastCalls{sessions: map[types.NamespacedName][]types.NamespacedName{}, calls: map[types.NamespacedName]lastCall{}}
}

// add takes a session's call that has ended, and is to go at a time, and returns the one that is to go for it, if any.
func (l *lastCalls) add(call *v1alpha1.ToolCall, due time.Time) (goes types.NamespacedName, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, session := client.ObjectKeyFromObject(call), sessionName(call)
	l.drop(key)
	calls := append(l.sessions[session], key)
	l.calls[key] = lastCall{session: session, uid: call.UID, due: due}
	if len(calls) > keptInSession {
		goes, is = calls[0], true
		one := l.calls[goes]
		one.isOver = true
		l.calls[goes] = one
		calls = calls[1:]
	}
	l.sessions[session] = calls
	return goes, is
}

// over is the call of a name that is to go before its time, if any.
func (l *lastCalls) over(call types.NamespacedName) (one lastCall, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one = l.calls[call]
	return one, one.isOver
}

// forget drops a call that is gone.
func (l *lastCalls) forget(call types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(call)
}

// drop needs the lock.
func (l *lastCalls) drop(call types.NamespacedName) {
	one, has := l.calls[call]
	if !has {
		return
	}
	delete(l.calls, call)
	calls := slices.DeleteFunc(l.sessions[one.session], func(other types.NamespacedName) bool { return other == call })
	if l.sessions[one.session] = calls; len(calls) == 0 {
		delete(l.sessions, one.session)
	}
}
