package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// ErrSessionDeleted means that the session was deleted while it was followed. Its calls end with it.
var ErrSessionDeleted = errors.New("the session was deleted")

var sessionSubject = subject[*v1alpha1.ToolSession]{
	name: "session", kind: "ToolSession", deleted: ErrSessionDeleted,
	object: func() *v1alpha1.ToolSession { return &v1alpha1.ToolSession{} },
	list:   func() client.ObjectList { return &v1alpha1.ToolSessionList{} },
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

// CreateSession creates the session. As Create does, it generates the name itself.
func (c Clients) CreateSession(ctx context.Context, session *v1alpha1.ToolSession) (*v1alpha1.ToolSession, error) {
	created := session.DeepCopy()
	if created.Name == "" {
		created.Name = generatedName(created.GenerateName)
	}
	if err := c.Calls.Create(ctx, created); err != nil {
		return nil, createSessionError(created, err)
	}
	return created, nil
}

// createSessionError adds what the user can do to the error of a request that creates a session.
func createSessionError(session *v1alpha1.ToolSession, err error) error {
	where := session.Namespace + "/" + session.Name
	switch {
	case NotInstalled(err):
		return notInstalled(sessionSubject.kind, err)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("session %s already exists: choose another name, or run calls in that session: %w", where, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("create the session (the ClusterRole toolcall-user grants permission in a namespace): %w", err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsNotFound(err):
		return fmt.Errorf("the API server rejected the session: %w", err)
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("unknown whether the session was created; if it was, its name is %s: %w", where, err)
	default:
		return fmt.Errorf("create session %s: %w", where, err)
	}
}

// WaitSession follows a session until the watcher has seen enough, and returns the session. Another session of the same
// name is not the same session. It restarts broken watches. The error wraps ErrSessionDeleted if the session is deleted,
// and the context's error if that ends first.
func (c Clients) WaitSession(ctx context.Context, session *v1alpha1.ToolSession, w SessionWatcher) (*v1alpha1.ToolSession, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	o := newObserver(sessionSubject, c.Calls, client.ObjectKeyFromObject(session))
	o.uid = session.UID
	running.Go(func() { o.run(ctx) })
	for noticed := false; ; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case err := <-o.broken:
			if w.Notice != nil && !noticed {
				w.Notice("the watch of the session failed, retrying: " + err.Error())
				noticed = true
			}
		case seen := <-o.out:
			if seen.err != nil {
				return nil, seen.err
			}
			if w.Changed != nil {
				w.Changed(seen.object)
			}
			if w.Until(seen.object) {
				return seen.object, ctx.Err()
			}
		}
	}
}
