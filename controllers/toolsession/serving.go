package toolsession

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// Serving is what the controller of calls needs to know of a call's session.
type Serving struct {
	// Session is nil when there is none of the name.
	Session *v1alpha1.ToolSession
	// Host is the process that the session's calls are handed to; nil when none is recorded.
	Host *host.SessionHost
	// TakesCalls says that a call whose turn it is may be handed over now.
	TakesCalls bool
	// Wait is the condition Started's reason, and Message its message, of a call that waits for the session; empty when the
	// session takes calls.
	Wait, Message string
}

// Servings looks sessions up for the controller of calls.
type Servings struct {
	Objects  apicache.Reader
	Hub      *dispatch.Hub
	Identity *dispatch.Identity
	// Earlier has the sessions as they were when this operator began to work.
	Earlier *host.EarlierCalls
}

// ErrBehind says that the cache doesn't show yet which process a session had when this operator began to work. Nothing may be
// handed over to another one, and nobody knows how a call ended.
var ErrBehind = errors.New("the cache does not show the session as it was when this operator started")

// Look says how it is with the session of a name. uid is the one that the session must have; empty for any.
func (l *Servings) Look(ctx context.Context, name types.NamespacedName, uid string) (*Serving, error) {
	session, err := l.find(ctx, name, uid)
	if err != nil || session == nil {
		return &Serving{}, err
	}
	v := &Serving{Session: session}
	if uid != "" && uid != string(session.UID) {
		return v, nil
	}
	v.Host = host.FindSessionHost(l.Hub, session)
	v.TakesCalls = session.TakesCalls() && session.IsHeld() && session.Status.Phase == v1alpha1.SessionReady && !session.Spec.Suspend && v.Host != nil && v.Host.IsServing()
	if !v.TakesCalls {
		v.Wait, v.Message = waitsFor(session)
	}
	return v, nil
}

// find gets a session; nil when there is none. It asks the API server where the cache has none, another one than is meant, or, where any is
// meant, one that takes no calls: the session of now may have been created a moment ago.
func (l *Servings) find(ctx context.Context, name types.NamespacedName, uid string) (*v1alpha1.ToolSession, error) {
	session := &v1alpha1.ToolSession{}
	err := l.Objects.Get(ctx, name, session)
	isMeant := uid == string(session.UID) || uid == "" && session.TakesCalls()
	switch {
	case err == nil && l.Earlier.IsBehind(session):
		return nil, ErrBehind
	case err == nil && isMeant:
		return session, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("get session %s: %w", name.Name, err)
	}
	now := &v1alpha1.ToolSession{}
	found, err := l.Objects.FindLive(ctx, name, now)
	if err != nil || !found {
		return nil, err
	}
	return now, nil
}

// Origin is what a session began with; nil before that, and after its end.
func (l *Servings) Origin(ctx context.Context, session *v1alpha1.ToolSession) (*decide.Origin, error) {
	return originOf(ctx, l.Objects, l.Identity, session)
}

func originOf(ctx context.Context, objects apicache.Reader, identity *dispatch.Identity, session *v1alpha1.ToolSession) (*decide.Origin, error) {
	bound := session.Status.Runner
	if bound == nil {
		return nil, nil
	}
	sealed, err := objects.SealedOrigin(ctx, session)
	if err != nil {
		return nil, err
	}
	origin, ok := jobspec.UnsealOrigin(identity, sealed, sealContext(session, bound)...)
	if !ok {
		return nil, nil
	}
	return origin, nil
}

// waitsFor is what a call waits for whose session takes none now.
func waitsFor(session *v1alpha1.ToolSession) (reason, message string) {
	c := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case session.Spec.Suspend:
		return v1alpha1.ReasonSessionSuspended, suspendedMessage
	case session.Status.Phase == v1alpha1.SessionSuspended:
		return v1alpha1.ReasonSessionSuspended, "the session was suspended while it was idle, and is being resumed"
	case c != nil && c.Reason != v1alpha1.ReasonReady:
		return v1alpha1.ReasonSessionStarting, c.Message
	default:
		return v1alpha1.ReasonSessionStarting, "the session's pod isn't connected to the operator"
	}
}
