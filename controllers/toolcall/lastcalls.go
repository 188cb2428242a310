package toolcall

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// lastCalls are the finished calls of each session that may stay, the oldest first. After a restart those that had ended
// before aren't among them: they stay for their time.
type lastCalls struct {
	mu       sync.Mutex
	sessions map[types.NamespacedName][]finishedCall
	// over are those that are to go before their time.
	over map[types.NamespacedName]types.UID
}

func newLastCalls() *lastCalls {
	return &lastCalls{sessions: map[types.NamespacedName][]finishedCall{}, over: map[types.NamespacedName]types.UID{}}
}

// add takes a session's call that has ended, and returns the one that is to go for it, if any.
func (l *lastCalls) add(call *v1alpha1.ToolCall) (goes types.NamespacedName, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	session := sessionName(call)
	calls := append(l.sessions[session], finishedCall{key: client.ObjectKeyFromObject(call), uid: call.UID})
	if len(calls) > keptInSession {
		goes, is = calls[0].key, true
		l.over[goes] = calls[0].uid
		calls = calls[1:]
	}
	l.sessions[session] = calls
	return goes, is
}

// isOver says that a call is to go before its time.
func (l *lastCalls) isOver(call *v1alpha1.ToolCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, over := l.over[client.ObjectKeyFromObject(call)]
	return over && uid == call.UID
}

// forget drops a call that is gone.
func (l *lastCalls) forget(call *v1alpha1.ToolCall) {
	if call.Spec.SessionRef == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.over, client.ObjectKeyFromObject(call))
	session := sessionName(call)
	calls := l.sessions[session]
	for i := range calls {
		if calls[i].uid == call.UID {
			calls = append(calls[:i:i], calls[i+1:]...)
			break
		}
	}
	if l.sessions[session] = calls; len(calls) == 0 {
		delete(l.sessions, session)
	}
}
