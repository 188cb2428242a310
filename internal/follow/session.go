package follow

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// ErrSessionDeleted means that the session was deleted while it was followed. Its calls end with it.
var ErrSessionDeleted = errors.New("the session was deleted")

var sessionSubject = subject[*v1alpha1.ToolSession]{
	name: "session", kind: "ToolSession", deleted: ErrSessionDeleted,
	existsHint: ": choose another name, or run calls in that session",
	object:     func() *v1alpha1.ToolSession { return &v1alpha1.ToolSession{} },
	list:       func() client.ObjectList { return &v1alpha1.ToolSessionList{} },
}

// SessionWatcher receives what happens to a session, in order, from one goroutine. Only Until is required.
type SessionWatcher struct {
	// Changed receives each observed state of the session.
	Changed func(session *v1alpha1.ToolSession)

	// Until ends the wait at the first state for which it returns true.
	Until func(session *v1alpha1.ToolSession) bool

	// Notice receives a sentence for people about a watch that failed and is retried.
	Notice func(text string)
}

// WaitSession follows a session until the watcher has seen enough, and returns the session. Another session of the same
// name is not the same session. It restarts broken watches. The error wraps ErrSessionDeleted if the session is deleted,
// and the context's error if that ends first.
func (c Clients) WaitSession(ctx context.Context, session *v1alpha1.ToolSession, w SessionWatcher) (*v1alpha1.ToolSession, error) {
	noticed := false
	o := newObserver(sessionSubject, c.Calls, client.ObjectKeyFromObject(session))
	o.uid = session.UID
	return o.each(ctx, func(err error) {
		if w.Notice != nil && !noticed {
			w.Notice("the watch of the session failed, retrying: " + err.Error())
			noticed = true
		}
	}, func(_ context.Context, session *v1alpha1.ToolSession) bool {
		if w.Changed != nil {
			w.Changed(session)
		}
		return w.Until(session)
	})
}
