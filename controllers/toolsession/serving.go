package toolsession

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// Serving is what the controller of calls needs to know of a call's session.
type Serving struct {
	// Session is nil when there is none of the name.
	Session *v1alpha1.ToolSession
	// Origin is what the session began with; nil before that, and after its end.
	Origin *decide.Origin
	// Runner is the connected process that is recorded and serves the session; nil when it isn't connected.
	Runner *dispatch.Session
	// TakesCalls says that a call whose turn it is may be handed to Runner now.
	TakesCalls bool
	// Wait is the condition Started's reason, and Since when it began to be so, of a call that waits for the session; empty
	// when the session takes calls. The time in which the call has to start counts from when the session takes calls.
	Wait, Message string
}

// Servings looks sessions up for the controller of calls.
type Servings struct {
	Objects  apicache.Reader
	Hub      *dispatch.Hub
	Identity *dispatch.Identity
}

// Look says how it is with the session of a name.
func (l *Servings) Look(ctx context.Context, name types.NamespacedName) (*Serving, error) {
	session := &v1alpha1.ToolSession{}
	found, err := l.Objects.Find(ctx, name, session)
	if err != nil || !found {
		return &Serving{}, err
	}
	v := &Serving{Session: session}
	if bound := session.Status.Runner; bound != nil {
		if v.Runner = l.Hub.SessionByKey(bound.KeyHash); v.Runner != nil && !isServedBy(session, v.Runner) {
			v.Runner = nil
		}
		sealed, err := l.Objects.SealedOrigin(ctx, session)
		if err != nil {
			return nil, err
		}
		v.Origin, _ = jobspec.UnsealOrigin(l.Identity, sealed, sealContext(session, bound)...)
	}
	v.TakesCalls = session.TakesCalls() && session.Status.Phase == v1alpha1.SessionReady && v.Runner != nil && v.Origin != nil && !session.Spec.Suspend
	if !v.TakesCalls {
		v.Wait, v.Message = waitsFor(session)
	}
	return v, nil
}

// isServedBy says that a runner serves a session, in the incarnation that is recorded.
func isServedBy(session *v1alpha1.ToolSession, runner *dispatch.Session) bool {
	served, ok := runner.ToolSession()
	return ok && served.UID == string(session.UID) && served.Incarnation == session.Status.Incarnation
}

// waitsFor is what a call waits for whose session takes none now.
func waitsFor(session *v1alpha1.ToolSession) (reason, message string) {
	c := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case session.Spec.Suspend, session.Status.Phase == v1alpha1.SessionSuspended:
		return v1alpha1.ReasonSessionSuspended, suspendedMessage
	case c != nil && c.Reason != v1alpha1.ReasonReady:
		return v1alpha1.ReasonSessionStarting, c.Message
	default:
		return v1alpha1.ReasonSessionStarting, "the session's pod isn't connected to the operator"
	}
}

// MayHave says which calls, of those that have not ended, the process that a session records may have got: those that it
// listed in its last hello and those that it was told of since. Of one that never said hello to this operator it may be
// any that was created before runners could reach this operator.
func MayHave(hub *dispatch.Hub, session *v1alpha1.ToolSession) func(*v1alpha1.ToolCall) bool {
	bound, since := session.Status.Runner, hub.Since()
	if bound == nil {
		return func(*v1alpha1.ToolCall) bool { return false }
	}
	accepted, known := hub.Accepted(bound.KeyHash)
	uids := map[string]bool{}
	for _, call := range accepted {
		uids[call.UID] = true
	}
	return func(call *v1alpha1.ToolCall) bool {
		if known {
			return uids[string(call.UID)]
		}
		return since.IsZero() || !call.CreationTimestamp.After(since)
	}
}
